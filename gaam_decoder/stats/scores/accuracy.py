"""Accuracy."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Found, Score


class Accuracy(Score):
    """Share of the rows with the right predicted class."""

    title = "accuracy"
    hits = True

    def of(self, answers: Answers) -> Found:
        """Whether every row is right."""
        right_N = answers.predicted_N == answers.labels
        return Found(value=float(right_N.mean(dtype=np.float64)), by_row=right_N)
