from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats


def brute_force(difference: np.ndarray) -> float:
    """The definition, in whole numbers."""
    sums = [
        abs(sum(s * int(d) for s, d in zip(signs, difference, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(difference))
    ]
    return float(np.mean(np.array(sums) >= abs(int(difference.sum()))))


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=11))
def test_sign_flip_equals_the_enumeration_of_all_patterns(rows: list[int]) -> None:
    difference = np.array(rows)
    result = stats.sign_flip(difference / 3800)
    assert result.exact
    assert result.p == pytest.approx(brute_force(difference), abs=1e-12)


@pytest.mark.parametrize("num_seeds", [2, 6, 13, 20])
def test_sign_flip_equals_scipys_permutation_test(num_seeds: int) -> None:
    generator = np.random.default_rng(num_seeds)
    difference = generator.normal(0.2, 1, num_seeds)
    expected = scipy.stats.permutation_test(
        (difference,),
        lambda d, axis: d.mean(axis),
        permutation_type="samples",
        n_resamples=np.inf if num_seeds < 14 else 200_000,
        vectorized=True,
        rng=0,
    )
    tolerance = 1e-12 if num_seeds < 14 else 0.005
    assert stats.sign_flip(difference).p == pytest.approx(expected.pvalue, abs=tolerance)


def test_above_twenty_seeds_the_estimate_is_near_the_exact_value() -> None:
    difference = np.random.default_rng(0).integers(-30, 60, 26)
    result = stats.sign_flip(difference / 1000)
    assert not result.exact
    chances = np.zeros(2 * int(np.abs(difference).sum()) + 1)  # exact, by adding seed to seed
    middle = len(chances) // 2
    chances[middle] = 1
    for d in difference:
        chances = (np.roll(chances, d) + np.roll(chances, -d)) / 2
    away = np.abs(np.arange(len(chances)) - middle) >= abs(int(difference.sum()))
    exact = chances[away].sum()
    assert result.p == pytest.approx(exact, abs=4 * (exact / 1e5) ** 0.5 + 1e-4)
    assert stats.sign_flip(difference / 1000) == result


def test_no_difference_is_no_evidence() -> None:
    assert stats.sign_flip(np.zeros(8)).p == 1
    assert stats.sign_flip(np.zeros(25)).p == 1
    with pytest.raises(ValueError, match="at least one"):
        stats.sign_flip(np.array([]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7).map(np.array))
def test_holm_rejects_what_the_step_down_procedure_rejects(p: np.ndarray) -> None:
    adjusted = stats.holm(p)
    for alpha in (0.01, 0.05, 0.3, 0.99):
        rejected = set()
        for step, index in enumerate(np.argsort(p, kind="stable")):
            if p[index] * (len(p) - step) > alpha:
                break
            rejected.add(int(index))
        assert set(np.flatnonzero(adjusted <= alpha).tolist()) == rejected
    assert np.all(adjusted >= p)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80).map(np.array),
)
def test_mcnemar_equals_scipys_binomial_test(right: np.ndarray) -> None:
    result = stats.mcnemar(right[:, 0], right[:, 1])
    only_first = sum(bool(a and not b) for a, b in right)
    only_second = sum(bool(b and not a) for a, b in right)
    assert (result.only_first, result.only_second) == (only_first, only_second)
    if only_first + only_second:
        expected = scipy.stats.binomtest(only_first, only_first + only_second).pvalue
        assert result.p == pytest.approx(expected, abs=1e-12)
    else:
        assert result.p == 1
