"""Mean absolute error of ordered classes."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class OrdinalMae(Score):
    """Mean number of classes between the predicted class and the label.

    ``gaam report --class-order`` gives the order of the classes; those that are numbers
    have one. A test over rows holds for it, because it is a mean of rows.
    """

    title = "ordinal MAE"
    larger_is_better = False
    percent = False
    margin = 0.01
    highest = float("inf")
    needs_class_order = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """The mean distance of a seed, and the distance of every row."""
        place_C = self.places_of_classes(answers.num_classes)
        signed_distance_N = place_C[answers.predicted_N] - place_C[answers.labels]
        distance_N = np.abs(signed_distance_N).astype(np.float64)
        # the test rows may lack a row with the largest possible distance
        largest_distance = answers.num_classes - 1
        largest_change = answers.tests_per_row * largest_distance / answers.num_rows
        return SeedScore(
            value=float(distance_N.mean()),
            by_row=distance_N,
            unseen_change=largest_change,
        )
