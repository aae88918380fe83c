"""Accuracy."""

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore
from gaam_decoder.tasks import CLASSIFICATION


class Accuracy(Score):
    """Share of the rows with the right predicted class."""

    title = "accuracy"
    is_share_of_hits = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """Whether every row is right."""
        value = float(CLASSIFICATION.accuracy(answers.right_N))
        return SeedScore(value=value, by_row=answers.right_N)
