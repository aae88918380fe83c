"""Micro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, by_influence


class MicroF1(Score):
    """F1 of all labels of all rows together.

    ``2 hits / (labels + predictions)``, counted over rows and labels. There is no value
    where no row has or gets a label.

    It allows a verdict: it is a ratio of means. A row with h hits and e labels and
    predictions changes F by ``(2 h - F e) / mean e`` (Efron 1982, infinitesimal
    jackknife).
    """

    tasks = ("multi-label",)
    title = "micro-F1"

    def of(self, answers: Answers) -> SeedScore | None:
        """The value plus the derivative of F in the weight of every row."""
        predicted_NK = answers.predicted_NK
        label_NK = answers.labels.astype(bool)
        hits_N = (predicted_NK & label_NK).sum(1)
        either_N = predicted_NK.sum(1) + label_NK.sum(1)
        mean_either = float(either_N.mean())
        if mean_either == 0:
            return None
        value = 2 * float(hits_N.mean()) / mean_either
        change_N = (2 * hits_N - value * either_N) / mean_either

        # kinds of rows: those that gain, by one hit or more, and those that lose
        gain = max(float(change_N.max()), (2 - 2 * value) / mean_either)
        loss = max(-float(change_N.min()), value / mean_either)
        return by_influence(answers, value, change_N, np.array([gain, loss]))
