"""Quadratically weighted kappa of ordered classes.

C classes; y the place of the label, z that of the predicted class.
"""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, by_cell


class QuadraticKappa(Score):
    """Agreement of ordered classes beyond chance: 1 if all are right, 0 by chance.

    ``1 - A / E``: ``A = mean (y - z)^2``, and E the same mean over all pairs of a label
    and a prediction, ``mean y^2 + mean z^2 - 2 mean y mean z``. ``gaam report
    --class-order`` gives the order of the classes; those that are numbers have one.

    It allows a verdict: it is a smooth function of means. A row changes it by
    ``(e A / E - a) / E``, a and e the derivatives of A and E in its weight (Efron 1982,
    infinitesimal jackknife).

    Source: Cohen 1968, "Weighted kappa: nominal scale agreement with provision for
        scaled disagreement or partial credit".
    """

    title = "quadratic kappa"
    percent = False
    lowest = -1.0
    of_order = True

    def of(self, answers: Answers) -> SeedScore | None:
        """None if all labels and predictions are one class."""
        place_C = self.place_C(answers.num_classes).astype(np.float64)
        share_C = answers.count_C / answers.num_rows
        count_C = np.bincount(answers.predicted_N, minlength=answers.num_classes)
        predicted_C = count_C / answers.num_rows
        mean_y = float(share_C @ place_C)
        mean_z = float(predicted_C @ place_C)
        step_N = place_C[answers.labels] - place_C[answers.predicted_N]
        observed = float(np.square(step_N).mean())
        square_y = float(share_C @ place_C**2)
        square_z = float(predicted_C @ place_C**2)
        by_chance = square_y + square_z - 2 * mean_y * mean_z
        is_one_class = (share_C * predicted_C).max() == 1
        if is_one_class:
            return None

        # rows are labels, columns predictions
        y_C1 = place_C[:, None]
        z_1C = place_C[None]
        from_observed_CC = np.square(y_C1 - z_1C) - observed
        from_chance_CC = y_C1**2 - square_y + z_1C**2 - square_z
        from_chance_CC -= 2 * mean_z * (y_C1 - mean_y) + 2 * mean_y * (z_1C - mean_z)
        ratio = observed / by_chance
        change_CC = (ratio * from_chance_CC - from_observed_CC) / by_chance
        return by_cell(answers, 1 - ratio, change_CC)
