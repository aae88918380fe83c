"""Micro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_with_influences,
)
from gaam_decoder.tasks import task_of


class MicroF1(Score):
    """F1 of all labels of all rows together.

    ``2 hits / (labels + predictions)``, counted over rows and labels. It is 0 where no
    row has or gets a label, as in scikit-learn.

    A test over rows holds for it, because it is a ratio of means. The influence of a
    row on F (the derivative of F in the weight of the row) is ``(2 h - F e) / mean e``;
    h is the number of its hits, e that of its labels and predictions together (Efron
    1982, infinitesimal jackknife).
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

        # The largest rise and the largest fall of F1 by a row. The sample may have no
        # row with a hit, or without: a row with one hit (h = 1, e = 2) and a row with
        # one wrong label (h = 0, e = 1) count in any case.
        mean_e = num_labels_and_predictions / answers.num_rows
        largest_rise = max(float(influence_N.max()), (2 - 2 * value) / mean_e)
        largest_fall = max(-float(influence_N.min()), value / mean_e)
        return score_with_influences(
            answers, value, influence_N, np.array([largest_rise, largest_fall])
        )

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where no row has or gets a label: one label makes F1 jump there."""
        if answers.labels.any() or answers.predicted_NK.any():
            return ""
        return "no row has or gets a label"
