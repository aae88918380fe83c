"""Tests of paired differences, against SciPy and all patterns there are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=11))
def test_sign_flip_equals_the_enumeration_of_all_patterns(rows: list[int]) -> None:
    result = stats.sign_flip(np.array(rows) / 3800)
    sums = np.array(list(itertools.product((-1, 1), repeat=len(rows)))) @ np.array(rows)
    assert result.exact
    assert result.p == pytest.approx(np.mean(np.abs(sums) >= abs(sum(rows))), abs=1e-12)


def test_above_twenty_seeds_the_estimate_is_near_the_exact_value() -> None:
    difference = np.random.default_rng(0).integers(-30, 60, 26)
    result = stats.sign_flip(difference / 1000)
    assert not result.exact
    chances = np.ones(1)  # of all sums, seed after seed
    for d in np.abs(difference):
        chances = np.convolve(chances, np.eye(2 * d + 1)[[0, -1]].sum(0) / 2)
    away = np.abs(np.arange(len(chances)) - len(chances) // 2) >= abs(
        int(difference.sum())
    )
    exact = chances[away].sum()
    assert result.p == pytest.approx(exact, abs=4 * (exact / 1e5) ** 0.5 + 1e-4)
    assert stats.sign_flip(difference / 1000) == result


@given(st.lists(st.floats(0, 1), max_size=7).map(np.array))
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
