"""Hamming loss."""

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class Hamming(Score):
    """Share of wrong answers to whether a row has a label, over rows and labels.

    A test over rows holds for it, because it is a mean of rows.
    """

    tasks = ("multi-label",)
    title = "Hamming loss"
    larger_is_better = False

    def seed_score(self, answers: Answers) -> SeedScore:
        """The share of wrong labels of a seed and of every row."""
        wrong_NK = answers.predicted_NK != answers.labels.astype(bool)
        wrong_N = wrong_NK.mean(1)
        # the test rows may lack a row with only wrong labels
        largest_change = answers.tests_per_row / answers.num_rows
        return SeedScore(
            value=float(wrong_N.mean()),
            by_row=wrong_N,
            unseen_change=largest_change,
        )
