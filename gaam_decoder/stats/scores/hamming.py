"""Hamming loss."""

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class Hamming(Score):
    """Share of wrong answers to whether a row has a label, over rows and labels.

    It allows a verdict: it is a mean over rows.
    """

    tasks = ("multi-label",)
    title = "Hamming loss"
    larger_is_better = False

    def of(self, answers: Answers) -> SeedScore:
        """The share of wrong labels of every row."""
        wrong_NK = answers.predicted_NK != answers.labels.astype(bool)
        wrong_N = wrong_NK.mean(1)
        unseen = (answers.repeats / answers.num_rows) ** 2
        return SeedScore(value=float(wrong_N.mean()), by_row=wrong_N, unseen=unseen)
