"""The temperature, against SciPy and a grid."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import from_numpy
from torch.nn.functional import binary_cross_entropy_with_logits

from gaam_decoder.stats.temperature import fit_temperature

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]


def loss(logits_NC: Logits, label_N: Labels, temperature: float) -> float:
    log_p_NC = log_softmax(logits_NC.astype(np.float64) / temperature, axis=-1)
    return float(-log_p_NC[np.arange(len(label_N)), label_N].mean())


def draw_rows(
    seed: int, num_rows: int, num_classes: int, temperature: float
) -> tuple[Logits, Labels]:
    """Logits whose labels are drawn from ``softmax(logits / temperature)``."""
    generator = np.random.default_rng(seed)
    drawn_NC = temperature * generator.normal(0, 2, (num_rows, num_classes))
    logits_NC = drawn_NC.astype(np.float32)
    gumbel_NC = generator.gumbel(size=(num_rows, num_classes))
    return logits_NC, (logits_NC / temperature + gumbel_NC).argmax(1)


def least_loss(logits_NC: Logits, label_N: Labels, near: float) -> tuple[float, float]:
    """SciPy's smallest loss, and the logarithm of its temperature."""

    def loss_of_logarithm(log_temperature: float) -> float:
        return loss(logits_NC, label_N, np.exp(log_temperature))

    result = minimize_scalar(
        loss_of_logarithm,
        bracket=(np.log(near) - 0.5, np.log(near) + 0.3),
        options={"xtol": 1e-10},
    )
    return float(result.fun), float(result.x)


# rows, classes and temperatures that rows are drawn with
DRAWN = list(product((3, 20, 200), (2, 3, 12), (0.02, 0.3, 1, 7, 300)))
GRID = np.geomspace(1e-3, 1e3, 26)


def test_no_temperature_has_a_smaller_loss() -> None:
    num_fitted = 0
    for seed, sizes in enumerate(DRAWN):
        logits_NC, label_N = draw_rows(seed, *sizes)
        fitted = fit_temperature(logits_NC, label_N)
        if fitted is None or fitted == np.inf:
            continue
        num_fitted += 1
        fitted_loss = loss(logits_NC, label_N, fitted)
        grid_losses = [loss(logits_NC, label_N, temperature) for temperature in GRID]
        assert fitted_loss <= min(grid_losses), sizes
        expected_loss, expected_logarithm = least_loss(logits_NC, label_N, fitted)
        assert fitted_loss <= expected_loss + 1e-12, sizes
        assert np.isclose(np.log(fitted), expected_logarithm, atol=1e-4), sizes
    assert num_fitted > 35


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 64.0, 1e30])
def test_it_is_the_temperature_that_labels_were_drawn_with_at_any_scale(
    scale: float,
) -> None:
    logits_NC, label_N = draw_rows(1, 20_000, 4, 1.0)
    fitted = fit_temperature(logits_NC, label_N)
    assert fitted is not None
    assert fitted == pytest.approx(1, rel=0.05)
    # of every row another number is added to all logits
    moved_NC = logits_NC.astype(np.float64) + np.arange(len(label_N))[:, None]
    scaled_temperature = fit_temperature(scale * moved_NC, label_N)
    assert scaled_temperature == pytest.approx(fitted * scale, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_none_where_no_temperature_has_the_smallest_loss(seed: int) -> None:
    """All rows right: the colder the better; worse than none: the hotter the better."""
    generator = np.random.default_rng(seed)
    logits_NC = generator.normal(0, 3, (15, 2 + seed % 4)).astype(np.float32)
    right_N = logits_NC.argmax(1)
    wrong_N = logits_NC.argmin(1)
    assert fit_temperature(logits_NC, right_N) is None
    assert fit_temperature(logits_NC, wrong_N) == np.inf
    assert fit_temperature(0 * logits_NC, wrong_N) == np.inf
    one_wrong_N = right_N.copy()
    one_wrong_N[0] = wrong_N[0]
    assert fit_temperature(logits_NC, one_wrong_N) is not None


@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.0], ids=str)
def test_label_sets_have_the_temperature_of_the_least_binary_cross_entropy(
    temperature: float,
) -> None:
    generator = np.random.default_rng(0)
    logits_NK = temperature * generator.normal(0, 2, (200, 5))
    p_NK = 1 / (1 + np.exp(-logits_NK / temperature))
    label_NK = (generator.random((200, 5)) < p_NK).astype(np.uint8)

    def loss_of_logarithm(log_temperature: float) -> float:
        scaled = from_numpy(logits_NK / np.exp(log_temperature))
        targets = from_numpy(label_NK.astype(np.float64))
        return float(binary_cross_entropy_with_logits(scaled, targets))

    expected = minimize_scalar(loss_of_logarithm, options={"xtol": 1e-10}).x
    fitted = fit_temperature(logits_NK, label_NK)
    assert fitted == pytest.approx(float(np.exp(expected)), rel=1e-5)
