"""Losses against their formulas, and what has to hold of any loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.config import TrainConfig
from gaam_decoder.losses import Loss
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.losses.focal import Focal


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels."""
    generator = torch.Generator().manual_seed(0)
    logits_BC = 3 * torch.randn(7, 4, generator=generator, dtype=torch.float64)
    label_B = torch.randint(4, (7,), generator=generator)
    return logits_BC, label_B


@pytest.mark.parametrize(("gamma", "alpha"), [(2.5, 0.25), (0.5, 1.0), (0.0, 2.0)])
def test_focal_loss_equals_numpy(gamma: float, alpha: float) -> None:
    logits_BC, label_B = batch()
    log_p_BC = log_softmax(logits_BC.numpy(), axis=1)
    log_p_B = log_p_BC[np.arange(7), label_B.numpy()]
    expected = (-alpha * (1 - np.exp(log_p_B)) ** gamma * log_p_B).mean()
    loss = Focal(gamma=gamma, alpha=alpha)(logits_BC, label_B)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_smoothed_cross_entropy_equals_numpy() -> None:
    logits_BC, label_B = batch()
    log_p_BC = log_softmax(logits_BC.numpy(), axis=1)
    target_BC = 0.9 * np.eye(4)[label_B.numpy()] + 0.1 / 4
    expected = -(target_BC * log_p_BC).sum(1).mean()
    loss = CrossEntropy(smoothing=0.1)(logits_BC, label_B)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.losses"))
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_losses_are_finite_with_finite_gradients(scale: float, name: str) -> None:
    loss_function: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    logits_BC, label_B = batch()
    logits_BC = (scale * logits_BC.float()).requires_grad_()
    loss = loss_function(logits_BC, label_B)
    loss.backward()
    assert loss.isfinite()
    assert logits_BC.grad is not None
    assert logits_BC.grad.isfinite().all()


@pytest.mark.parametrize(
    "text",
    [
        "cross-entropy:smoothing=1",
        "focal:gamma=-1",
        "focal:alpha=0",
        "focal:x=1",
        "hinge",
    ],
)
def test_bad_losses_are_refused_at_once(text: str) -> None:
    settings: dict[str, Any] = {"loss": text}
    with pytest.raises(ConfigError):
        TrainConfig(**settings)
