"""Mean absolute error."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class Mae(Score):
    """Mean distance of the outputs from the numbers, in the unit of the data.

    Of several numbers, the mean over them. A test over rows holds for a mean of rows.
    The default margin is 0.01 of that unit, which suits few data: choose one.
    """

    tasks = ("regression",)
    title = "MAE"
    larger_is_better = False
    percent = False
    margin = 0.01
    highest = float("inf")
    has_unit_of_numbers = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """The mean absolute error of a seed and of every row."""
        error_NK = np.abs(answers.labels.astype(np.float64) - answers.logits)
        error_N = error_NK.mean(1)
        # an error has no bound: the test rows may lack a row as bad as their worst
        largest_error = float(error_N.max())
        largest_change = largest_error * answers.tests_per_row / answers.num_rows
        return SeedScore(
            value=float(error_N.mean()),
            by_row=error_N,
            unseen_change=largest_change,
        )
