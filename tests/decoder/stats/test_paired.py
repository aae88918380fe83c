"""Tests of paired differences, against SciPy and all patterns there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_decoder import stats

Floats = NDArray[np.float64]


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=11))
def test_sign_flip_equals_the_enumeration_of_all_patterns(rows: list[int]) -> None:
    result = stats.sign_flip(np.array(rows) / 3800)
    patterns = np.array(list(itertools.product((-1, 1), repeat=len(rows))))
    sums = patterns @ np.array(rows)
    assert result.exact
    assert result.p == pytest.approx(np.mean(np.abs(sums) >= abs(sum(rows))), abs=1e-12)


def chances_of_sums(differences: NDArray[np.int64]) -> Floats:
    """The chance of every sum from the lowest to the highest, with signs by lot."""
    chances = np.ones(1)
    for difference in np.abs(differences):
        # either the difference is subtracted or it is added
        chance_of_sign = np.zeros(2 * difference + 1)
        chance_of_sign[0] += 0.5
        chance_of_sign[-1] += 0.5
        chances = np.convolve(chances, chance_of_sign)
    return chances


def test_above_twenty_seeds_the_estimate_is_near_the_exact_value() -> None:
    differences = np.random.default_rng(0).integers(-30, 60, 26)
    result = stats.sign_flip(differences / 1000)
    assert not result.exact
    chances = chances_of_sums(differences)
    sums = np.arange(len(chances)) - len(chances) // 2
    exact = chances[np.abs(sums) >= abs(int(differences.sum()))].sum()
    assert result.p == pytest.approx(exact, abs=4 * (exact / 1e5) ** 0.5 + 1e-4)
    assert stats.sign_flip(differences / 1000) == result


def rejected_step_by_step(p: Floats, alpha: float) -> set[int]:
    """What Holm's step-down procedure rejects: from the smallest p up to the first
    that is too large for as many tests as are left."""
    rejected = set()
    for step, index in enumerate(np.argsort(p, kind="stable")):
        if p[index] * (len(p) - step) > alpha:
            break
        rejected.add(int(index))
    return rejected


@given(
    p=st.lists(st.floats(0, 1), max_size=7).map(np.array),
    alpha=st.sampled_from([0.01, 0.05, 0.3, 0.99]),
)
def test_holm_rejects_what_the_step_down_procedure_rejects(
    p: Floats, alpha: float
) -> None:
    adjusted = stats.holm(p)
    rejected = set(np.flatnonzero(adjusted <= alpha).tolist())
    assert rejected == rejected_step_by_step(p, alpha)
    assert np.all(adjusted >= p)
