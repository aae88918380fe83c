"""The temperature, against SciPy and a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from gaam_decoder.stats.temperature import fit_temperature


def loss(logits_NC: np.ndarray, label_N: np.ndarray, temperature: float) -> float:
    log_p_NC = log_softmax(logits_NC.astype(np.float64) / temperature, axis=-1)
    return float(-log_p_NC[np.arange(len(label_N)), label_N].mean())


def drawn(
    seed: int, rows: int, classes: int, true: float
) -> tuple[np.ndarray, np.ndarray]:
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
        assert least <= min(
            loss(logits_NC, label_N, t) for t in np.geomspace(1e-3, 1e3, 26)
        )
        theirs = minimize_scalar(
            lambda log_t, z=logits_NC, y=label_N: loss(z, y, np.exp(log_t)),
            bracket=(np.log(found) - 0.5, np.log(found) + 0.3),
            options={"xtol": 1e-10},
        )
        assert least <= theirs.fun + 1e-12
        assert np.isclose(np.log(found), theirs.x, atol=1e-4)
    assert fitted > 35


def test_it_finds_the_temperature_that_labels_were_drawn_with_at_any_scale() -> None:
    logits_NC, label_N = drawn(1, 20_000, 4, 1.0)
    found = fit_temperature(logits_NC, label_N)
    assert found == pytest.approx(1, rel=0.05)
    for scale in (1e-30, 1e-3, 64.0, 1e30):
        moved_NC = scale * (logits_NC.astype(np.float64) + np.arange(4 * 5000)[:, None])
        assert fit_temperature(moved_NC, label_N) == pytest.approx(
            found * scale, rel=1e-9
        )


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
