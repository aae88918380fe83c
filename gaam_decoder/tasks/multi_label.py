"""Multi-label: every row has a set of K labels, and decoders give a logit for each.

A row has a label where its logit is above 0: where the probability is above one half.

S seeds, N rows, K labels.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.tasks.base import Targets, Task, in_float64

if TYPE_CHECKING:
    from torch import Tensor


class MultiLabel(Task):
    """The predictions of decoders for sets of K labels, and how good they are.

    Formula: ``micro-F1 = 2 T / (P + L)``; P the number of predicted labels of all rows
    together, L that of their labels, T that of both. It is 0 where P and L are 0.
    """

    name = "multi-label"
    default_loss = "binary-cross-entropy"
    default_score = "micro-f1"
    score_title = "micro-F1"
    baseline_in_words = "the labels of more than half of the training rows alone"
    probe_in_words = "logistic regression of every label"
    verb = "Labels"
    outputs_in_words = "labels"
    caveat = "a row may get no label; probabilities are not calibrated"
    sums_shape = (2,)

    def predictions(self, outputs: Any) -> Any:
        """Whether a row has each label, (..., K)."""
        return outputs > 0

    def batch_sums(self, output_SBK: "Tensor", targets: "Tensor") -> "Tensor":
        """Numerator and denominator of micro-F1 over the rows of every seed, (S, 2).

        The numerator is twice the number of right predicted labels, the denominator the
        number of predicted labels and of labels together.
        """
        predicted_SBK = self.predictions(output_SBK)
        actual_SBK = targets > 0.5
        numerator_S = 2 * (predicted_SBK & actual_SBK).sum((1, 2))
        denominator_S = predicted_SBK.sum((1, 2)) + actual_SBK.sum((1, 2))
        # torch is imported only here: reports need no tensors
        from torch import stack

        return stack([numerator_S, denominator_S], dim=1)

    def training_score(
        self,
        sums_S: "Tensor",
        num_rows: "int | Tensor",  # noqa: ARG002
    ) -> "Tensor":
        """Micro-F1 of an epoch, (S,), from the sums of ``batch_sums``, (S, 2)."""
        numerator_S = sums_S[:, 0]
        denominator_S = sums_S[:, 1]
        # 0 where nothing is a label or predicted, and both are 0
        return numerator_S / denominator_S.clamp(min=1)

    def selection_score(self, outputs: Any, targets: Any) -> Any:
        """Micro-F1 at logit 0."""
        predicted = self.predictions(outputs)
        actual = targets > 0.5
        num_right = in_float64((predicted & actual).sum((-2, -1)))
        denominator = in_float64(predicted.sum((-2, -1)) + actual.sum((-2, -1)))
        # where nothing is a label or predicted, 0 / 1 instead of 0 / 0
        return 2 * num_right / (denominator + (denominator == 0))

    def row_contributions(self, output_NK: Targets, targets: Targets) -> NDArray[Any]:
        """``micro-F1 + influence of the row``, (N,).

        The influence is the derivative of micro-F1 in the weight of the row.
        """
        predicted_NK = self.predictions(output_NK)
        actual_NK = targets > 0.5
        num_right_N = (predicted_NK & actual_NK).sum(1)
        # predicted labels and labels of each row together
        num_both_N = predicted_NK.sum(1) + actual_NK.sum(1)
        score = float(self.selection_score(output_NK, targets))
        denominator = max(1, int(num_both_N.sum()))
        change_N = (2 * num_right_N - score * num_both_N) / denominator
        contribution_N: NDArray[Any] = score + len(targets) * change_N
        return contribution_N

    def baseline_score(self, training: Targets, tested: Targets) -> float:
        """Micro-F1 of the labels that more than half of the training rows have."""
        is_frequent_K = (training > 0.5).mean(0) > 0.5
        logit_K = np.where(is_frequent_K, 1.0, -1.0)
        return float(
            self.selection_score(np.broadcast_to(logit_K, tested.shape), tested)
        )

    def strata(self, targets: Targets) -> NDArray[np.int64]:
        """The rarest label of each row, K for a row without labels."""
        return rarest_labels(self.scored_targets(targets))

    def stratify_by(self, targets: Targets) -> NDArray[np.bool_]:
        """Whether a row has each label, for iterative stratification."""
        return self.scored_targets(targets)

    def scored_targets(self, targets: Targets) -> Targets:
        """Whether rows have labels."""
        return targets > 0.5

    def learned_targets(self, targets: "Tensor") -> "Tensor":
        """Targets as the numbers 0 and 1."""
        return targets.float()


def rarest_labels(label_NK: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rarest label of each row, K for a row without labels, (N,)."""
    num_rows, num_labels = label_NK.shape
    count_K = label_NK.sum(0)
    # a label that a row lacks counts as more frequent than any that it has
    count_NK = np.where(label_NK, count_K, num_rows + 1)
    rarest_N = count_NK.argmin(1)
    has_no_label_N = ~label_NK.any(1)
    rarest_N[has_no_label_N] = num_labels
    stratum_N: NDArray[np.int64] = rarest_N.astype(np.int64)
    return stratum_N
