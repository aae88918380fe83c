"""Accuracy."""

from gaam_decoder.stats.scores.base import Answers, Found, Score
from gaam_decoder.tasks import CLASSIFICATION


class Accuracy(Score):
    """Share of the rows with the right predicted class."""

    title = "accuracy"
    hits = True

    def of(self, answers: Answers) -> Found:
        """Whether every row is right."""
        value = float(CLASSIFICATION.accuracy(answers.right_N))
        return Found(value=value, by_row=answers.right_N)
