"""Coefficient of determination.

N test rows, K numbers of a row.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_with_influences,
)
from gaam_decoder.tasks import task_of
from gaam_decoder.tasks.regression import is_flat


class R2(Score):
    """Share of the variance of a number that is explained, averaged over the numbers.

    ``1 - A / B``: ``A = mean (y - f)^2`` and ``B = mean (y - mean y)^2`` over the test
    rows, y the number, f the output. It has no lower bound: 0 is the mean of the test
    rows, less is worse. Of a number that is the same in all test rows it is 1 where the
    outputs are exact, else 0, as in scikit-learn.

    A test over rows holds for it, because it is a smooth function of means. The
    influence of a row (the derivative in its weight) is ``(b A / B - a) / B``; a and b
    are the squares of this row in A and B (Efron 1982, infinitesimal jackknife).
    """

    tasks = ("regression",)
    title = "R2"
    percent = False
    lowest = float("-inf")

    def seed_score(self, answers: Answers) -> SeedScore:
        """R2 of a seed, and the influence of every row on it."""
        task = task_of("regression")
        value = float(task.selection_score(answers.logits, answers.labels))
        # contribution of a row = value + influence of the row
        influence_N = task.row_contributions(answers.logits, answers.labels) - value
        # an error has no bound: the test rows may lack a row as bad as their worst
        largest_influence = float(np.abs(influence_N).max())
        return score_with_influences(answers, value, influence_N, largest_influence)

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where a number does not vary: one other row makes R2 jump."""
        if is_flat(answers.labels).any():
            return "a number is the same in all test rows"
        return ""
