"""Mean absolute error of ordered classes."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class OrdinalMae(Score):
    """Mean number of classes between the predicted class and the label.

    ``gaam report --class-order`` gives the order of the classes; those that are numbers
    have one. It allows a verdict: it is a mean over rows.
    """

    title = "ordinal MAE"
    larger_is_better = False
    percent = False
    margin = 0.01
    highest = float("inf")
    of_order = True

    def of(self, answers: Answers) -> SeedScore:
        """The distance of every row."""
        place_C = self.place_C(answers.num_classes)
        step_N = place_C[answers.predicted_N] - place_C[answers.labels]
        distance_N = np.abs(step_N).astype(np.float64)
        largest = answers.repeats * (answers.num_classes - 1) / answers.num_rows
        return SeedScore(
            value=float(distance_N.mean()), by_row=distance_N, unseen=largest**2
        )
