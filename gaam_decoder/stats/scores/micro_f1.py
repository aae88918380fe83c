"""Micro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, by_influence
from gaam_decoder.tasks import task_of


class MicroF1(Score):
    """F1 of all labels of all rows together.

    ``2 hits / (labels + predictions)``, counted over rows and labels. It is 0 where no
    row has or gets a label, as in scikit-learn.

    It allows a verdict: it is a ratio of means. A row with h hits and e labels and
    predictions changes F by ``(2 h - F e) / mean e`` (Efron 1982, infinitesimal
    jackknife).
    """

    tasks = ("multi-label",)
    title = "micro-F1"

    def of(self, answers: Answers) -> SeedScore:
        """The value plus the derivative of F in the weight of every row."""
        task = task_of("multi-label")
        value = float(task.selection(answers.logits, answers.labels))
        change_N = task.contributions(answers.logits, answers.labels) - value
        predicted_NK = answers.predicted_NK
        num_either = int(predicted_NK.sum()) + int(answers.labels.sum())
        if num_either == 0:
            return SeedScore(value=value, by_row=np.zeros(answers.num_rows))

        # kinds of rows: those that gain, by one hit or more, and those that lose
        mean_either = num_either / answers.num_rows
        gain = max(float(change_N.max()), (2 - 2 * value) / mean_either)
        loss = max(-float(change_N.min()), value / mean_either)
        return by_influence(answers, value, change_N, np.array([gain, loss]))

    def why_no_claim(self, answers: Answers) -> str:
        """One label more makes F1 jump."""
        if answers.labels.any() or answers.predicted_NK.any():
            return ""
        return "no row has or gets a label"
