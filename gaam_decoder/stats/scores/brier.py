"""Brier score."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class Brier(Score):
    """Mean squared distance between the probabilities and the label, from 0 to 2.

    ``sum_c (p_c - [y = c])^2``, as Brier 1950 defines it for any number of classes.
    Other programs show half of it for two classes. Of label sets it is the mean of
    ``(p_k - y_k)^2`` over the labels, from 0 to 1.
    """

    tasks = ("classification", "multi-label")
    title = "Brier score"
    larger_is_better = False
    percent = False
    margin = 0.005
    """The margin of accuracy; a wrong prediction that is certain adds 2."""
    highest = 2.0
    uses_temperature = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """The Brier score of a seed and of every row."""
        if answers.labels.ndim == 2:
            largest_score = 1.0
            score_N = np.square(answers.p_NK - answers.labels).mean(-1)
        else:
            largest_score = self.highest
            deviation_NC = np.exp(answers.log_p_NC)
            deviation_NC[np.arange(answers.num_rows), answers.labels] -= 1
            score_N = np.square(deviation_NC).sum(-1)
        # the test rows may lack a row with the largest possible score
        largest_change = answers.tests_per_row * largest_score / answers.num_rows
        return SeedScore(
            value=float(score_N.mean()),
            by_row=score_N,
            unseen_change=largest_change,
        )
