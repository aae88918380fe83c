from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gaam_decoder import RunResult
from gaam_decoder.analysis.learned import learned_ranges, parameter_range
from tests.decoder.reports.conftest import build_run


def made(beta: np.ndarray, **about: Any) -> RunResult:
    """A run whose exponents are given."""
    return build_run(
        "generalized-gaussian", np.ones((len(beta), 2)), learned={"beta": beta}, **about
    )


@given(arrays(np.float32, (3, 2, 5), elements=st.floats(0.0625, 8, width=32)))
def test_ranges_equal_plain_python(beta: np.ndarray) -> None:
    found = parameter_range(beta, [2.0, 2.0])
    flat = sorted(float(value) for value in beta.ravel())
    assert (found["start"], found["min"], found["max"]) == (
        [2.0, 2.0],
        flat[0],
        flat[-1],
    )
    assert found["median"] == pytest.approx(statistics.median(flat))
    medians = [statistics.median(map(float, seed.ravel())) for seed in beta]
    assert found["seed_medians_sd"] == pytest.approx(
        statistics.stdev(medians), abs=1e-9
    )


def test_failed_seeds_are_left_out_and_runs_of_other_seeds_are_joined() -> None:
    beta = np.array([1.0, np.nan, 3.0], np.float32).reshape(3, 1, 1)
    first = made(beta, failed={1: "nan"})
    second = made(np.full((1, 1, 1), 9.0, np.float32), seeds=(7,))
    found = learned_ranges([first, second])["beta"]
    assert (found["min"], found["median"], found["max"]) == (1.0, 3.0, 9.0)
    assert learned_ranges([second])["beta"]["seed_medians_sd"] is None
    none_left = made(beta, failed=dict.fromkeys((0, 1, 2), "nan"))
    assert learned_ranges([none_left]) == {}
