"""The corrected resampled t test, against its formula and against the usual one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats

DIFFERENCES = st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=50)


@given(values=DIFFERENCES, folds=st.integers(2, 20))
def test_it_equals_the_formula_written_out(values: list[float], folds: int) -> None:
    found = stats.corrected_resampled_t(np.array(values), 1 / (folds - 1))
    assert found is not None
    splits = len(values)
    mean = sum(values) / splits
    variance = sum((value - mean) ** 2 for value in values) / (splits - 1)
    error = math.sqrt((1 / splits + 1 / (folds - 1)) * variance)
    assert found.splits == splits
    assert found.difference == pytest.approx(mean, abs=1e-15)
    if error > 1e-12:
        p = 2 * scipy.stats.t.sf(abs(mean) / error, splits - 1)
        assert found.p == pytest.approx(p, rel=1e-6)
        half = scipy.stats.t.ppf(0.975, splits - 1) * error
        expected = np.clip([mean - half, mean + half], -1, 1)
        np.testing.assert_allclose(found.interval, expected, rtol=1e-6, atol=1e-12)
        assert (found.p < 0.05) == (found.interval[0] > 0 or found.interval[1] < 0)


def test_without_shared_training_rows_it_is_the_usual_t_test() -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).normal(0.01, 0.02, 3 + seed)
        found = stats.corrected_resampled_t(values, 0.0)
        usual = scipy.stats.ttest_1samp(values, 0)
        assert found is not None
        assert found.p == pytest.approx(usual.pvalue)
        np.testing.assert_allclose(found.interval, usual.confidence_interval())


def test_shared_training_rows_make_it_more_careful() -> None:
    values = np.random.default_rng(0).normal(0.02, 0.02, 10)
    found = [stats.corrected_resampled_t(values, share) for share in (0.0, 1 / 9, 1 / 4, 1.0)]
    p = [one.p for one in found if one]
    assert p == sorted(p)
    assert p[0] < 0.5 * p[2]


def test_splits_that_do_not_differ_are_as_sure_as_can_be() -> None:
    for count in (2, 5, 100):
        nothing = stats.corrected_resampled_t(np.zeros(count), 0.25)
        assert nothing is not None
        assert (nothing.p, nothing.interval, nothing.difference) == (1.0, (0.0, 0.0), 0.0)
        alike = stats.corrected_resampled_t(np.full(count, 0.25), 0.25)
        assert alike is not None
        assert (alike.p, alike.interval) == (0.0, (0.25, 0.25))


def test_fewer_than_two_splits_say_nothing() -> None:
    for values in (np.array([]), np.array([0.5])):
        assert stats.corrected_resampled_t(values, 0.25) is None


def test_its_numbers_are_those_of_json() -> None:
    found = stats.corrected_resampled_t(np.array([0.01, 0.02, 0.04]), 0.5)
    assert found is not None
    assert found.to_dict() == {
        "splits": 3,
        "difference": found.difference,
        "ci95": [*found.interval],
        "p": found.p,
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    for values in ([bad], [0.1, bad], [bad] * 5):
        with pytest.raises(ValueError, match="finite values"):
            stats.corrected_resampled_t(np.array(values), 0.25)
