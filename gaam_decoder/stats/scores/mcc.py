"""Matthews correlation coefficient.

C classes; T and P the shares of the classes among labels and predictions.
"""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, by_cell


class Mcc(Score):
    """Correlation of labels and predicted classes, from -1 to 1; 0 by chance.

    ``(a - T.P) / sqrt((1 - T.T) (1 - P.P))``, a the accuracy. It is 0 where a single
    class is predicted; there is no value where all test rows are of one class.

    It allows a verdict: it is a smooth function of means, except where a single class
    is predicted.

    Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category
        correlation coefficient".
    """

    title = "MCC"
    percent = False
    lowest = -1.0

    def of(self, answers: Answers) -> SeedScore | None:
        """The value plus its derivative in the weight of every row."""
        share_C = answers.count_C / answers.num_rows
        predicted_C = np.bincount(answers.predicted_N, minlength=answers.num_classes)
        predicted_C = predicted_C / answers.num_rows
        if share_C.max() == 1:
            return None
        if predicted_C.max() == 1:
            return SeedScore(value=0.0, by_row=np.zeros(answers.num_rows))
        right = float(answers.right_N.mean())
        by_chance = float(share_C @ predicted_C)
        square_y = float(share_C @ share_C)
        square_z = float(predicted_C @ predicted_C)
        root = ((1 - square_y) * (1 - square_z)) ** 0.5
        value = (right - by_chance) / root

        # rows are labels, columns predictions
        own_CC = np.eye(answers.num_classes) - right
        chance_CC = predicted_C[:, None] + share_C[None] - 2 * by_chance
        from_y_C = (share_C - square_y) / (1 - square_y)
        from_z_C = (predicted_C - square_z) / (1 - square_z)
        change_CC = (own_CC - chance_CC) / root
        change_CC += value * (from_y_C[:, None] + from_z_C[None])
        return by_cell(answers, value, change_CC)

    def why_no_claim(self, answers: Answers) -> str:
        """One prediction of another class makes the coefficient jump."""
        predicted_N = answers.predicted_N
        if (predicted_N == predicted_N[0]).all():
            return "a single class is predicted"
        return ""
