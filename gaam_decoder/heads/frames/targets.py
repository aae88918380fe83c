"""How fitted heads read the targets of any task, and how good their outputs are.

N rows, K outputs: classes, numbers or labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional

from gaam_decoder.heads.base import Examples
from gaam_decoder.tasks import task_of

MOST_SCORED = 1000
"""Training rows on which a head that keeps its rows is scored."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classification": functional.cross_entropy,
    "regression": functional.mse_loss,
    "multi-label": functional.binary_cross_entropy_with_logits,
}
"""The loss of outputs, by task."""


class FitScore(NamedTuple):
    """How good a fitted head is on some rows."""

    value: float  # accuracy, R2 or micro-F1: larger is better
    loss: float  # cross-entropy, mean squared error, or binary cross-entropy

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, larger for a better fit: of equal values, the lower loss wins."""
        return self.value, -self.loss


def target_matrix(rows: Examples, num_outputs: int) -> Tensor:
    """Targets as numbers, (N, K) float64; classes and labels are 0 and 1."""
    if rows.task == "classification":
        return functional.one_hot(rows.label_N, num_outputs).double()
    return rows.label_N.double()


def fit_score(output_NK: Tensor, rows: Examples) -> FitScore:
    """How good the outputs of rows are: the score and the loss of their task.

    ``output_NK`` are the outputs of a row for K classes, columns of numbers or labels.
    """
    task = task_of(rows.task)
    outputs = output_NK.double()
    value = float(task.selection_score(outputs, rows.label_N))
    targets = rows.label_N
    if not task.has_classes:
        targets = targets.double()
    loss = LOSSES[rows.task](outputs, targets)
    return FitScore(value, float(loss))


def log_entry(
    *,
    number: int,
    setting: str,
    value: float,
    training: FitScore,
    validation: FitScore,
    task_name: str,
) -> dict[str, Any]:
    """The entry of a run's log for one value of a setting, as JSON values.

    Args:
        number: of the value, from 1; it stands where training by steps has the epoch.
        setting: the name of the setting, such as 'penalty'.
        value: the value.
        training: score and loss of the training rows.
        validation: score and loss of the validation rows.
        task_name: the task, which names the scores.
    """
    task = task_of(task_name)
    return {
        "epoch": number,
        setting: value,
        "loss": training.loss,
        task.training_key: training.value,
        task.score_key: validation.value,
        "selection_loss": validation.loss,
    }


def evenly_spaced(rows: Examples) -> Examples:
    """At most ``MOST_SCORED`` of the rows, evenly spaced."""
    step = max(1, math.ceil(len(rows) / MOST_SCORED))
    return Examples(rows.x_NF[::step], rows.label_N[::step], rows.task)
