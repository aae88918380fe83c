from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from gaam_cache.common.errors import ConfigError
from gaam_decoder.losses.cross_entropy import CrossEntropy
from gaam_decoder.losses.focal import Focal
from tests.decoder.configs import loose_config
from tests.decoder.losses.examples import EXAMPLES, Example


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


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_losses_are_finite_with_finite_gradients(example: Example) -> None:
    for scale in (0.0, 1.0, 1e4):
        logits, label = example.batch()
        logits = (scale * logits.float()).requires_grad_()
        loss = example.loss()(logits, label)
        loss.backward()
        assert loss.isfinite()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


REFERENCES: dict[str, torch.nn.Module] = {
    "mse": torch.nn.MSELoss(),
    "huber": torch.nn.HuberLoss(),
    "huber:delta=0.3": torch.nn.HuberLoss(delta=0.3),
    "binary-cross-entropy": torch.nn.BCEWithLogitsLoss(),
    "focal:gamma=0,alpha=1": torch.nn.BCEWithLogitsLoss(),
}


@pytest.mark.parametrize("text", REFERENCES)
def test_losses_of_numbers_and_label_sets_equal_those_of_torch(text: str) -> None:
    numbers = text.startswith(("mse", "huber"))
    example = Example(text, "regression" if numbers else "multi-label")
    logits, target = example.batch()
    expected = REFERENCES[text](logits, target.to(logits.dtype))
    torch.testing.assert_close(example.loss()(logits, target), expected)


def test_focal_loss_of_label_sets_equals_numpy() -> None:
    logits, target = Example("focal", "multi-label").batch()
    p = 1 / (1 + np.exp(-logits.numpy()))
    p_right = np.where(target.numpy(), p, 1 - p)
    expected = (-0.25 * (1 - p_right) ** 2.5 * np.log(p_right)).mean()
    np.testing.assert_allclose(Focal()(logits, target), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "cross-entropy:smoothing=1",
        "focal:gamma=-1",
        "focal:alpha=0",
        "focal:x=1",
        "huber:delta=0",
        "hinge",
    ],
)
def test_bad_losses_are_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigError):
        loose_config(loss=text)
