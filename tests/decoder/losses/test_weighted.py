"""Losses with weights of classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.common import plugins
from gaam_decoder.losses import Loss, balanced, weighted_mean

LOSSES = plugins.names("gaam_decoder.losses")


def loss_named(name: str) -> Loss:
    loss: Loss = plugins.load("gaam_decoder.losses", name, kind="loss")()
    return loss


class Batch(NamedTuple):
    """Rows with weights."""

    logits_BC: torch.Tensor
    label_B: torch.Tensor
    weight_B: torch.Tensor


def draw_batch(num_rows: int = 9) -> Batch:
    """Of the classes one has no weight, others have small and large ones."""
    generator = torch.Generator().manual_seed(num_rows)
    logits_BC = 3 * torch.randn(num_rows, 4, generator=generator, dtype=torch.float64)
    label_B = torch.randint(4, (num_rows,), generator=generator)
    weight_C = torch.tensor([0.0, 0.3, 1.0, 17.0], dtype=torch.float64)
    return Batch(logits_BC, label_B, weight_C[label_B])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("num_rows", [1, 2, 9])
def test_a_weighted_loss_is_the_mean_of_weighted_losses_of_single_rows(
    num_rows: int, name: str
) -> None:
    loss_function = loss_named(name)
    batch = draw_batch(num_rows)
    losses = []
    for row in range(num_rows):
        single = slice(row, row + 1)
        losses.append(
            float(loss_function(batch.logits_BC[single], batch.label_B[single]))
        )
    expected = np.dot(batch.weight_B.numpy(), losses) / num_rows
    mean = weighted_mean(loss_function, *batch)
    assert float(mean) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_weighted_losses_equal_finite_differences(name: str) -> None:
    batch = draw_batch()

    def loss_of_logits(logits_BC: torch.Tensor) -> torch.Tensor:
        loss_function = loss_named(name)
        return weighted_mean(loss_function, logits_BC, batch.label_B, batch.weight_B)

    assert torch.autograd.gradcheck(loss_of_logits, batch.logits_BC.requires_grad_())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_balanced_weights_make_all_classes_count_alike(labels: list[int]) -> None:
    """n / (k n_c) by hand; a class without rows has weight 0 and is not in k."""
    num_classes = 8
    label_N = np.array(labels)
    [weight_C] = balanced(
        torch.from_numpy(label_N)[None], num_classes, torch.float64
    ).numpy()
    classes, counts = np.unique(label_N, return_counts=True)
    expected = np.zeros(num_classes)
    expected[classes] = len(labels) / (len(classes) * counts)
    np.testing.assert_allclose(weight_C, expected, rtol=1e-14)
    np.testing.assert_allclose(weight_C[label_N].mean(), 1.0, rtol=1e-12)


def test_balanced_weights_of_seeds_with_other_labels_are_those_of_each_alone() -> None:
    generator = np.random.default_rng(0)
    label_SN = torch.from_numpy(generator.integers(0, 4, (3, 25)) ** 2 // 4)
    weight_SC = balanced(label_SN, 5, torch.float64)
    for label_N, weight_C in zip(label_SN, weight_SC, strict=True):
        [expected] = balanced(label_N[None], 5, torch.float64)
        assert torch.equal(weight_C, expected)
