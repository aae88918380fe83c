"""Micro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_of_label_sets,
)
from gaam_decoder.tasks import task_of


class MicroF1(Score):
    """F1 of all labels of all rows together.

    ``2 hits / (labels + predictions)``, counted over rows and labels. It is 0 where no
    row has or gets a label, as in scikit-learn.

    A test over rows holds for it, because it is a ratio of means. The influence of a
    row (the derivative of F1 in the weight of the row) is
    ``(2 hits - F1 (labels + predictions)) / mean (labels + predictions)``, with the
    hits, labels and predictions of this row (Efron 1982, infinitesimal jackknife).
    """

    tasks = ("multi-label",)
    title = "micro-F1"

    def seed_score(self, answers: Answers) -> SeedScore:
        """Micro F1 of a seed, and the influence of every row on it."""
        task = task_of("multi-label")
        value = float(task.selection_score(answers.logits, answers.labels))
        # contribution of a row = value + influence of the row
        influence_N = task.row_contributions(answers.logits, answers.labels) - value
        num_predictions = int(answers.predicted_NK.sum())
        num_labels_and_predictions = num_predictions + int(answers.labels.sum())
        if num_labels_and_predictions == 0:
            return SeedScore(value=value, by_row=np.zeros(answers.num_rows))

        # hits in place of misses, and of as many wrong predictions
        mean_per_row = num_labels_and_predictions / answers.num_rows
        change_N = 2 * answers.labels.sum(1) / mean_per_row
        return score_of_label_sets(answers, value, influence_N, change_N)

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where no row has or gets a label: one label makes F1 jump there."""
        if answers.labels.any() or answers.predicted_NK.any():
            return ""
        return "no row has or gets a label"
