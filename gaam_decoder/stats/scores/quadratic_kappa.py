"""Quadratically weighted kappa of ordered classes.

C classes; y the place of the label, z that of the predicted class.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_of_confusion_matrix,
)


class QuadraticKappa(Score):
    """Agreement of ordered classes beyond chance: 1 if all are right, 0 by chance.

    ``1 - A / E``: ``A = mean (y - z)^2``, and E the same mean over all pairs of a label
    and a prediction, ``mean y^2 + mean z^2 - 2 mean y mean z``. ``gaam report
    --class-order`` gives the order of the classes; those that are numbers have one.

    A test over rows holds for it, because it is a smooth function of means. The
    influence of a row (the derivative in its weight) is ``(e A / E - a) / E``, a and e
    the derivatives of A and E (Efron 1982, infinitesimal jackknife).

    Source: Cohen 1968, "Weighted kappa: nominal scale agreement with provision for
        scaled disagreement or partial credit".
    """

    title = "quadratic kappa"
    percent = False
    lowest = -1.0
    needs_class_order = True

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """Kappa of a seed, and the influence of every row on it.

        None if all labels and predictions are one class.
        """
        place_C = self.places_of_classes(answers.num_classes).astype(np.float64)
        label_share_C = answers.count_C / answers.num_rows
        count_C = np.bincount(answers.predicted_N, minlength=answers.num_classes)
        predicted_share_C = count_C / answers.num_rows
        is_one_class = (label_share_C * predicted_share_C).max() == 1
        if is_one_class:
            return None

        # mean squared distance of label (y) and prediction (z): observed (A), and by
        # chance (E)
        distance_N = place_C[answers.labels] - place_C[answers.predicted_N]
        observed = float(np.square(distance_N).mean())
        mean_y = float(label_share_C @ place_C)
        mean_z = float(predicted_share_C @ place_C)
        square_y = float(label_share_C @ place_C**2)
        square_z = float(predicted_share_C @ place_C**2)
        by_chance = square_y + square_z - 2 * mean_y * mean_z

        # A row's influence is the derivative of 1 - A / E in the row's weight. Labels
        # are on the first axis, predictions on the second.
        y_C1 = place_C[:, None]
        z_1C = place_C[None]
        d_observed_CC = np.square(y_C1 - z_1C) - observed
        d_chance_CC = y_C1**2 - square_y + z_1C**2 - square_z
        d_chance_CC -= 2 * mean_z * (y_C1 - mean_y) + 2 * mean_y * (z_1C - mean_z)
        ratio = observed / by_chance
        influence_CC = (ratio * d_chance_CC - d_observed_CC) / by_chance
        return score_of_confusion_matrix(
            answers, value=1 - ratio, influence_CC=influence_CC
        )
