"""The temperature, against brute force and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from gaam_decoder.stats.temperature import fit_temperature

GRID = np.geomspace(1e-3, 1e3, 1001)


def loss(logits_NC: np.ndarray, label_N: np.ndarray, temperature: float) -> float:
    log_p_NC = log_softmax(logits_NC.astype(np.float64) / temperature, axis=-1)
    return float(-log_p_NC[np.arange(len(label_N)), label_N].mean())


def drawn(seed: int, rows: int, classes: int, true: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose labels were drawn from ``softmax(logits / true)``."""
    generator = np.random.default_rng(seed)
    logits_NC = (true * generator.normal(0, 2, (rows, classes))).astype(np.float32)
    gumbel_NC = generator.gumbel(size=(rows, classes))
    return logits_NC, (logits_NC / true + gumbel_NC).argmax(1)


def test_no_temperature_has_a_smaller_loss() -> None:
    fitted = 0
    for seed, (rows, classes, true) in enumerate(
        (rows, classes, true)
        for rows in (3, 20, 200)
        for classes in (2, 3, 12)
        for true in (0.02, 0.3, 1, 7, 300)
    ):
        logits_NC, label_N = drawn(seed, rows, classes, true)
        found = fit_temperature(logits_NC, label_N)
        if found is None or found == np.inf:
            continue
        fitted += 1
        least = loss(logits_NC, label_N, found)
        assert least <= min(loss(logits_NC, label_N, t) for t in GRID[::40]) + 1e-12
        theirs = minimize_scalar(
            lambda log_t, z=logits_NC, y=label_N: loss(z, y, np.exp(log_t)),
            bracket=(np.log(found) - 0.5, np.log(found) + 0.3),
            options={"xtol": 1e-10},
        )
        assert least <= theirs.fun + 1e-12
        assert np.isclose(np.log(found), theirs.x, atol=1e-4)
    assert fitted > 35


def test_it_finds_the_temperature_that_labels_were_drawn_with() -> None:
    for seed, true in enumerate((0.1, 0.5, 1, 2, 30)):
        found = fit_temperature(*drawn(seed, 20_000, 4, true))
        assert found is not None
        assert abs(found / true - 1) < 0.05


def test_it_is_the_best_of_a_grid() -> None:
    for seed, true in enumerate((0.1, 1, 30)):
        logits_NC, label_N = drawn(seed, 60, 3, true)
        found = fit_temperature(logits_NC, label_N)
        brute = min(GRID, key=lambda t, z=logits_NC, y=label_N: loss(z, y, t))
        assert found is not None
        assert abs(found / brute - 1) < GRID[1] / GRID[0] - 1


def test_none_where_the_smallest_loss_is_that_of_no_temperature() -> None:
    """Every row right: the colder the better; answers worse than none: the hotter the better."""
    for seed in range(20):
        generator = np.random.default_rng(seed)
        logits_NC = generator.normal(0, 3, (15, 2 + seed % 4)).astype(np.float32)
        assert fit_temperature(logits_NC, logits_NC.argmax(1)) is None
        assert fit_temperature(logits_NC, logits_NC.argmin(1)) == np.inf
        assert fit_temperature(0 * logits_NC, logits_NC.argmin(1)) == np.inf
        one_wrong_N = logits_NC.argmax(1)
        one_wrong_N[0] = logits_NC[0].argmin()
        assert fit_temperature(logits_NC, one_wrong_N) is not None


def test_scale_and_shift_of_logits() -> None:
    logits_NC, label_N = drawn(1, 300, 3, 1.0)
    found = fit_temperature(logits_NC, label_N)
    assert found is not None
    for scale in (1e-30, 1e-3, 64.0, 1e30):
        scaled = fit_temperature(logits_NC.astype(np.float64) * scale, label_N)
        assert np.isclose(scaled, found * scale, rtol=1e-9)
    moved_NC = logits_NC.astype(np.float64) + np.arange(300)[:, None]
    assert np.isclose(fit_temperature(moved_NC, label_N), found, rtol=1e-9)


def test_what_is_no_input_is_refused() -> None:
    good_NC, label_N = drawn(0, 5, 3, 1.0)
    for bad in (np.nan, np.inf, -np.inf):
        wrong_NC = good_NC.copy()
        wrong_NC[2, 1] = bad
        with pytest.raises(ValueError, match="finite"):
            fit_temperature(wrong_NC, label_N)
    for logits_NC, labels in ((good_NC[:0], label_N[:0]), (good_NC, label_N[1:])):
        with pytest.raises(ValueError, match="one row at least"):
            fit_temperature(logits_NC, labels)
