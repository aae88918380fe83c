"""Exact match."""

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore
from gaam_decoder.tasks import CLASSIFICATION


class ExactMatch(Score):
    """Share of the rows that get exactly their labels, none more and none less.

    It allows a verdict, as the accuracy does: every row is right or wrong.
    """

    tasks = ("multi-label",)
    title = "exact match"
    is_share_of_hits = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """Whether every row is right."""
        right_N = (answers.predicted_NK == answers.labels.astype(bool)).all(1)
        return SeedScore(value=float(CLASSIFICATION.accuracy(right_N)), by_row=right_N)
