"""Ranges of learned parameters are those of plain Python, over all seeds."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from gaam_decoder import RunResult
from gaam_decoder.analysis.learned import learned_ranges, parameter_range
from tests.decoder.reports.conftest import build_run

BETA = arrays(np.float32, (3, 2, 5), elements=st.floats(0.0625, 8, width=32))


def run_with(beta: NDArray[np.float32], **changes: Any) -> RunResult:
    """A run with these exponents."""
    right = np.ones((len(beta), 2))
    return build_run("generalized-gaussian", right, learned={"beta": beta}, **changes)


@given(BETA)
def test_ranges_equal_plain_python(beta: NDArray[np.float32]) -> None:
    values = [float(value) for value in beta.ravel()]
    ranges = parameter_range(beta, [2.0, 2.0])
    assert ranges["start"] == [2.0, 2.0]
    assert ranges["min"] == min(values)
    assert ranges["max"] == max(values)
    assert ranges["median"] == pytest.approx(statistics.median(values))
    medians = [statistics.median(map(float, seed.ravel())) for seed in beta]
    expected = pytest.approx(statistics.stdev(medians), abs=1e-9)
    assert ranges["seed_medians_sd"] == expected


BETA_S11 = np.array([1.0, np.nan, 3.0], np.float32).reshape(3, 1, 1)
"""Exponents of three seeds, of which the second failed."""


def run_of_another_seed() -> RunResult:
    return run_with(np.full((1, 1, 1), 9.0, np.float32), seeds=(7,))


def test_failed_seeds_are_left_out_and_runs_of_other_seeds_are_joined() -> None:
    run = run_with(BETA_S11, failed={1: "nan"})
    beta = learned_ranges([run, run_of_another_seed()])["beta"]
    assert beta["min"] == 1.0
    assert beta["median"] == 3.0
    assert beta["max"] == 9.0


def test_a_single_seed_has_no_deviation() -> None:
    assert learned_ranges([run_of_another_seed()])["beta"]["seed_medians_sd"] is None


def test_where_all_seeds_failed_there_are_no_ranges() -> None:
    run = run_with(BETA_S11, failed=dict.fromkeys((0, 1, 2), "nan"))
    assert learned_ranges([run]) == {}
