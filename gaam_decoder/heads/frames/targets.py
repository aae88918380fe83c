"""How fitted heads read the targets of any task, and how good their outputs are.

N rows, K outputs: classes, numbers or labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gaam_decoder.heads.base import Examples
from gaam_decoder.tasks import CLASSIFICATION

MOST_SCORED = 1000
"""Training rows on which a head that keeps its rows is scored."""


class FitScore(NamedTuple):
    """Of a fitted head, on some rows."""

    value: float  # accuracy, R2 or micro-F1: larger is better
    loss: float  # cross-entropy, mean squared error, or binary cross-entropy

    @property
    def rank(self) -> tuple[float, float]:
        """The larger, the better: of equal values, the lower loss wins."""
        return self.value, -self.loss


def target_matrix(rows: Examples, num_outputs: int) -> Tensor:
    """Targets as numbers, (N, K) float64; classes and labels are 0 and 1."""
    if rows.task == "classification":
        return functional.one_hot(rows.label_N, num_outputs).double()
    return rows.label_N.double()


def score(output_NK: Tensor, rows: Examples) -> FitScore:
    """How good the outputs of rows are.

    The value is accuracy, R2 averaged over the numbers, or micro-F1 at logit 0.
    """
    outputs = output_NK.double()
    if rows.task == "classification":
        predicted_N = CLASSIFICATION.predictions(outputs)
        hit_N = CLASSIFICATION.hits(predicted_N, rows.label_N)
        loss = functional.cross_entropy(outputs, rows.label_N)
        return FitScore(float(CLASSIFICATION.accuracy(hit_N)), float(loss))
    targets = rows.label_N.double()
    if rows.task == "regression":
        loss = functional.mse_loss(outputs, targets)
        return FitScore(_r2(outputs, targets), float(loss))
    loss = functional.binary_cross_entropy_with_logits(outputs, targets)
    return FitScore(_micro_f1(outputs, targets), float(loss))


def _r2(output_NK: Tensor, target_NK: Tensor) -> float:
    """R2, averaged over the numbers; of a constant number, 1 if it is exact, else 0."""
    residual_K = (target_NK - output_NK).square().sum(0)
    spread_K = (target_NK - target_NK.mean(0)).square().sum(0)
    is_flat_K = (target_NK == target_NK[:1]).all(0)
    of_flat_K = (residual_K == 0).double()
    of_others_K = 1 - residual_K / torch.where(is_flat_K, 1.0, spread_K)
    return float(torch.where(is_flat_K, of_flat_K, of_others_K).mean())


def _micro_f1(output_NK: Tensor, target_NK: Tensor) -> float:
    """F1 of all labels together; 0 where no row has or gets a label."""
    predicted_NK = output_NK > 0
    label_NK = target_NK > 0.5
    hits = int((predicted_NK & label_NK).sum())
    either = int(predicted_NK.sum() + label_NK.sum())
    return 2 * hits / max(either, 1)


def log_entry(
    number: int, setting: str, value: float, training: FitScore, validation: FitScore
) -> dict[str, Any]:
    """The entry of a log for one value of a setting."""
    return {
        "epoch": number,
        setting: value,
        "loss": training.loss,
        "train_accuracy": training.value,
        "accuracy": validation.value,
        "selection_loss": validation.loss,
    }


def some_of(rows: Examples) -> Examples:
    """At most ``MOST_SCORED`` rows, evenly spaced."""
    step = max(1, -(-len(rows) // MOST_SCORED))
    return Examples(rows.x_NF[::step], rows.label_N[::step], rows.task)
