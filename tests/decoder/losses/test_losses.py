from __future__ import annotations

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
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(7, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randint(4, (7,), generator=generator)


@pytest.mark.parametrize(("gamma", "alpha"), [(2.5, 0.25), (0.5, 1.0), (0.0, 2.0)])
def test_focal_loss_equals_numpy(gamma: float, alpha: float) -> None:
    logits, label = batch()
    log_p = log_softmax(logits.numpy(), axis=1)[np.arange(7), label.numpy()]
    expected = (-alpha * (1 - np.exp(log_p)) ** gamma * log_p).mean()
    np.testing.assert_allclose(
        Focal(gamma=gamma, alpha=alpha)(logits, label), expected, rtol=1e-9
    )


def test_smoothed_cross_entropy_equals_numpy() -> None:
    logits, label = batch()
    log_p = log_softmax(logits.numpy(), axis=1)
    target = 0.9 * np.eye(4)[label.numpy()] + 0.1 / 4
    expected = -(target * log_p).sum(1).mean()
    np.testing.assert_allclose(
        CrossEntropy(smoothing=0.1)(logits, label), expected, rtol=1e-9
    )


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.losses"))
def test_losses_are_finite_with_finite_gradients(name: str) -> None:
    loss_of: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    for scale in (0.0, 1.0, 1e4):
        logits = (scale * batch()[0].float()).requires_grad_()
        loss = loss_of(logits, batch()[1])
        loss.backward()
        assert loss.isfinite()
        assert logits.grad.isfinite().all()


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
    with pytest.raises(ConfigError):
        TrainConfig(loss=text)
