"""The seeds as a sample, and splits of the same rows, against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=40).map(np.array)


@given(values=VALUES, level=st.sampled_from([0.8, 0.95, 0.99]))
def test_t_interval_equals_scipy(values: np.ndarray, level: float) -> None:
    ours, sem = stats.t_interval(values, level), scipy.stats.sem(values)
    if sem > 0:
        expected = scipy.stats.t.interval(level, len(values) - 1, values.mean(), sem)
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    else:
        assert ours == (values.mean(), values.mean())
    low, high = stats.within(ours, 0, 1) or (0, 0)
    assert 0 <= low <= values.mean() <= high + 1e-15 <= 1 + 1e-15


@given(
    values=st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=50),
    folds=st.integers(2, 20),
)
def test_the_corrected_resampled_t_test_equals_the_formula_written_out(
    values: list[float], folds: int
) -> None:
    found, splits = (
        stats.corrected_resampled_t(np.array(values), 1 / (folds - 1)),
        len(values),
    )
    mean = sum(values) / splits
    variance = sum((value - mean) ** 2 for value in values) / (splits - 1)
    error = math.sqrt((1 / splits + 1 / (folds - 1)) * variance)
    assert found is not None
    assert (found.splits, found.difference) == (splits, pytest.approx(mean, abs=1e-15))
    if error > 1e-12:
        p = 2 * scipy.stats.t.sf(abs(mean) / error, splits - 1)
        assert found.p == pytest.approx(p, rel=1e-6)
        expected = np.clip(scipy.stats.t.interval(0.95, splits - 1, mean, error), -1, 1)
        np.testing.assert_allclose(found.interval, expected, rtol=1e-6, atol=1e-12)


def test_nothing_one_value_equal_values_and_what_is_no_number() -> None:
    for function in (
        stats.standard_deviation,
        stats.t_interval,
        stats.minimum_detectable_difference,
        lambda values: stats.corrected_resampled_t(values, 0.25),
    ):
        assert function(np.array([])) is function(np.array([0.5])) is None
        for bad in ([np.nan], [0.5, np.inf], [-np.inf] * 30):
            with pytest.raises(ValueError, match="NaN"):
                function(np.array(bad))
    for value in (0.0, 0.1, 1 / 3, 0.7):
        equal = np.full(7, value)
        assert (
            stats.standard_deviation(equal)
            == stats.minimum_detectable_difference(equal)
            == 0
        )
        alike = stats.corrected_resampled_t(equal, 0.25)
        assert alike is not None
        assert alike.p == (value == 0)
        for interval in (alike.interval, stats.t_interval(equal)):
            np.testing.assert_allclose(interval, [value, value], atol=1e-12)
    assert stats.within(None, 0, 1) is None


def test_a_detectable_difference_is_found_with_that_power() -> None:
    for num_seeds in (2, 5, 10, 60):
        values = (
            scipy.stats.zscore(np.random.default_rng(3).normal(size=num_seeds), ddof=1)
            / 50
        )
        for power in (0.5, 0.8, 0.9):
            delta = stats.minimum_detectable_difference(values, power=power)
            assert delta is not None
            df, shift = num_seeds - 1, 50 * delta * num_seeds**0.5
            found = scipy.stats.nct.sf(scipy.stats.t.ppf(0.975, df), df, shift)
            assert found == pytest.approx(power, abs=1e-6)
    sample = np.random.default_rng(3).normal(0, 1, (20_000, 10)) + _detectable(10)
    share = (scipy.stats.ttest_1samp(sample, 0, axis=1).pvalue < 0.05).mean()
    assert share == pytest.approx(0.8, abs=0.012)


def _detectable(count: int) -> float:
    """Of so many values with a standard deviation of 1."""
    values = scipy.stats.zscore(np.arange(count), ddof=1)
    return stats.minimum_detectable_difference(values) or 0.0


def test_seeds_needed_is_the_least_number() -> None:
    assert stats.seeds_needed(1) == 6
    for count in (1, 2, 3, 10, 200):
        for alpha in (0.05, 0.01):
            needed = stats.seeds_needed(count, alpha=alpha)
            p = [
                stats.holm(np.full(count, 2 / 2**s)).min() for s in (needed - 1, needed)
            ]
            assert p[1] < alpha <= p[0]
    with pytest.raises(ValueError, match="compared"):
        stats.seeds_needed(0)


def test_a_plateau_is_rarely_called_too_short_and_a_rise_always() -> None:
    """Of simulated trainings, whose best epoch is the first of the most accurate ones."""
    for epochs, seeds, folds in (
        (1, 6, 1),
        (5, 3, 1),
        (2, 10, 5),
        (15, 6, 2),
        (30, 10, 5),
    ):
        noise = np.random.default_rng(epochs).random((2000, seeds, folds, epochs))
        chance = 1 - (1 - 1 / epochs) ** folds
        telling = seeds >= stats.LEAST_SEEDS and chance**seeds < 0.2
        for rise in (False, True):
            last = (noise + 1000 * rise * np.arange(epochs)).argmax(-1) == epochs - 1
            late = last.any(2).sum(1)
            called = np.mean(
                [stats.later_than_chance(n, seeds, epochs, folds) for n in late]
            )
            if rise:
                assert called == 1
            elif telling:
                assert called < 0.24  # 0.2 and four standard errors of 2,000
            else:  # one is enough
                assert called == np.mean(late > 0)
