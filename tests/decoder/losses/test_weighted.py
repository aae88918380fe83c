from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_decoder.losses import (
    balanced,
    balanced_labels,
    weighted_label_mean,
    weighted_mean,
)
from tests.decoder.losses.examples import EXAMPLES, Example


def row_weights(rows: int) -> torch.Tensor:
    """None, small, and large."""
    weight = torch.tensor([0.0, 0.3, 1.0, 17.0], dtype=torch.float64)
    return weight[torch.arange(rows) % 4]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_weighted_loss_is_the_mean_of_weighted_losses_of_single_rows(
    example: Example, rows: int
) -> None:
    loss_of = example.loss()
    logits, label = example.batch(rows)
    weight = row_weights(rows)
    each = [float(loss_of(logits[n : n + 1], label[n : n + 1])) for n in range(rows)]
    mean = weighted_mean(loss_of, logits, label, weight)
    assert float(mean) == pytest.approx(np.dot(weight.numpy(), each) / rows, rel=1e-12)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_gradients_of_weighted_losses_equal_finite_differences(
    example: Example,
) -> None:
    logits, label = example.batch()
    loss_of = example.loss()
    assert torch.autograd.gradcheck(
        lambda x: weighted_mean(loss_of, x, label, row_weights(9)),
        logits.requires_grad_(),
    )


OF_LABEL_SETS = [example for example in EXAMPLES if example.task == "multi-label"]


@pytest.mark.parametrize("example", OF_LABEL_SETS, ids=str)
def test_weights_of_labels_weigh_the_rows_that_have_them(example: Example) -> None:
    loss_of = example.loss()
    logits, label = example.batch()
    weight = torch.tensor([0.2, 1.0, 3.0, 17.0], dtype=torch.float64)
    total = 0.0
    for row in range(9):
        for k in range(4):
            one = (slice(row, row + 1), slice(k, k + 1))
            factor = float(weight[k]) if label[row, k] else 1.0
            total += factor * float(loss_of(logits[one], label[one]))
    mean = weighted_label_mean(loss_of, logits, label, weight)
    assert float(mean) == pytest.approx(total / 36, rel=1e-12)
    alike = weighted_label_mean(loss_of, logits, label, None)
    assert float(alike) == float(loss_of(logits, label))
    assert torch.autograd.gradcheck(
        lambda x: weighted_label_mean(loss_of, x, label, weight),
        logits.requires_grad_(),
    )


def test_weighted_binary_cross_entropy_equals_that_of_torch() -> None:
    example = Example("binary-cross-entropy", "multi-label")
    logits, label = example.batch()
    weight = balanced_labels(label[None], torch.float64)[0]
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=weight)(logits, label.double())
    ours = weighted_label_mean(example.loss(), logits, label, weight)
    torch.testing.assert_close(ours, theirs)


def test_balanced_labels_have_as_much_weight_with_as_without() -> None:
    label_SNK = torch.rand(3, 20, 5, generator=torch.Generator().manual_seed(0)) < 0.3
    label_SNK[:, :, 3] = False
    label_SNK[:, :, 4] = True
    weight_SK = balanced_labels(label_SNK, torch.float64)
    with_SK = label_SNK.sum(1)
    torch.testing.assert_close(
        (weight_SK * with_SK)[:, :3], (20 - with_SK)[:, :3].double()
    )
    assert (weight_SK[:, 3] == 20).all(), "no row has the label"
    assert (weight_SK[:, 4] == 1 / 20).all(), "every row has the label"


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
