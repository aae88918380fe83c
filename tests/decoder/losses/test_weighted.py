from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_cache.common import plugins
from gaam_decoder.losses import Loss, balanced, weighted_mean

LOSSES = plugins.names("gaam_decoder.losses")


def loss_named(name: str) -> Loss:
    loss: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    return loss


def batch(rows: int = 9) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, labels, weights of rows: none, small, large."""
    generator = torch.Generator().manual_seed(rows)
    logits = 3 * torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    label = torch.randint(4, (rows,), generator=generator)
    return (
        logits,
        label,
        torch.tensor([0.0, 0.3, 1.0, 17.0], dtype=torch.float64)[label],
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_weighted_loss_is_the_mean_of_weighted_losses_of_single_rows(
    name: str, rows: int
) -> None:
    loss_of = loss_named(name)
    logits, label, weight = batch(rows)
    each = [float(loss_of(logits[n : n + 1], label[n : n + 1])) for n in range(rows)]
    mean = weighted_mean(loss_of, logits, label, weight)
    assert float(mean) == pytest.approx(np.dot(weight.numpy(), each) / rows, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_weighted_losses_equal_finite_differences(name: str) -> None:
    logits, label, weight = batch()
    assert torch.autograd.gradcheck(
        lambda x: weighted_mean(loss_named(name), x, label, weight),
        logits.requires_grad_(),
    )


def test_balanced_weights_make_all_classes_count_alike() -> None:
    """n / (k n_c) by hand; a class without rows has weight 0 and is not in k."""
    generator = np.random.default_rng(0)
    for classes in (1, 2, 3, 7):
        for _ in range(20):
            label_SN = torch.from_numpy(
                generator.integers(0, classes, (3, 25)) ** 2 // classes
            )
            weight_SC = balanced(label_SN, classes + 1, torch.float64)
            for label_N, weight_C in zip(
                label_SN.numpy(), weight_SC.numpy(), strict=True
            ):
                present, counts = np.unique(label_N, return_counts=True)
                expected = np.zeros(classes + 1)
                expected[present] = 25 / (len(present) * counts)
                np.testing.assert_allclose(weight_C, expected, rtol=1e-14)
                np.testing.assert_allclose(weight_C[label_N].mean(), 1.0, rtol=1e-12)
