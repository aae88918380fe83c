"""Gates that can be planted: what they compute, and how well others can imitate them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gaam_cache import plugins
from gaam_decoder.analysis.planting import GaussianStates, planted_mechanism
from gaam_decoder.plant_config import GATES

FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "laplace": lambda r: np.exp(-np.abs(r) / 0.5),
    "gaussian": lambda r: np.exp(-(r**2) / (2 * 0.5)),
    "student-t": lambda r: (1 + r**2 / (1.0 * 0.25)) ** (-(1.0 + 1) / 2),
    "two-peaks": lambda r: (r**2 / 0.5 / 2) * np.exp(-(r**2 / 0.5 - 2) / 2),
    "none": lambda r: np.ones_like(r),
}
"""As ATTENTION.md writes the densities, with the planted numbers."""


def standardised(x_NLD: np.ndarray) -> np.ndarray:
    variance_N1D = np.abs((x_NLD**2).mean(1, keepdims=True) - x_NLD.mean(1, keepdims=True) ** 2)
    return (x_NLD - x_NLD.mean(1, keepdims=True)) / np.sqrt(variance_N1D + 1e-8 + 1e-5)


@pytest.fixture(scope="module")
def x_NLD() -> np.ndarray:
    return GaussianStates((8000, 16, 2), 0, 0, "float32")[:].astype(np.float64)


@pytest.mark.parametrize("gate", GATES)
def test_a_planted_gate_is_its_formula(gate: str, x_NLD: np.ndarray) -> None:
    with torch.inference_mode():
        found = planted_mechanism(gate, 16, 2)(torch.from_numpy(x_NLD)).numpy()
    expected = x_NLD * FORMULAS[gate](standardised(x_NLD))
    np.testing.assert_allclose(
        found, expected, rtol=1e-9, atol=1e-10
    )  # logarithms of q have 1e-12 added


def test_formulas_and_mechanisms_are_those_that_there_are() -> None:
    assert set(FORMULAS) == set(GATES)
    known = plugins.names("gaam_decoder.attention")
    assert {gate.mechanism for gate in GATES.values()} <= set(known)


def test_others_see_as_much_of_a_gate_as_is_said(x_NLD: np.ndarray) -> None:
    """Of one layer and feature, for all are alike: the squared correlation with the best width."""
    r, x = standardised(x_NLD)[:, 0, 0], x_NLD[:, 0, 0]
    widths = np.geomspace(0.02, 50, 200)

    def seen(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(a, b)[0, 1] ** 2)

    left = {}
    for gate, formula in FORMULAS.items():
        y = x * formula(r)
        linear = seen(x, y)
        assert linear < {"two-peaks": 0.22, "none": 1.01}.get(gate, 0.05), gate
        left[gate] = 1 - max(seen(x * np.exp(-(r**2) / (2 * width)), y) for width in widths)
    assert 0.03 < left["laplace"] < 0.05
    assert 0.015 < left["student-t"] < 0.03
    assert left["two-peaks"] > 0.45
    assert left["gaussian"] < 1e-3
