"""Matthews correlation coefficient.

C classes; T and P the shares of the classes among labels and predictions.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_of_confusion_matrix,
)


class Mcc(Score):
    """Correlation of labels and predicted classes, from -1 to 1; 0 by chance.

    ``(a - T.P) / sqrt((1 - T.T) (1 - P.P))``, a the accuracy. It is 0 where a single
    class is predicted; there is no value where all test rows are of one class.

    A test over rows holds for it, because it is a smooth function of means, except
    where a single class is predicted.

    Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category
        correlation coefficient".
    """

    title = "MCC"
    percent = False
    lowest = -1.0

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """MCC of a seed with the influence of every row, the derivative in its weight.

        None if all test rows are of one class.
        """
        label_share_C = answers.count_C / answers.num_rows
        count_C = np.bincount(answers.predicted_N, minlength=answers.num_classes)
        predicted_share_C = count_C / answers.num_rows
        if label_share_C.max() == 1:
            return None
        if predicted_share_C.max() == 1:
            return SeedScore(value=0.0, by_row=np.zeros(answers.num_rows))
        accuracy = float(answers.right_N.mean())
        by_chance = float(label_share_C @ predicted_share_C)  # T.P
        label_square = float(label_share_C @ label_share_C)  # T.T
        predicted_square = float(predicted_share_C @ predicted_share_C)  # P.P
        root = ((1 - label_square) * (1 - predicted_square)) ** 0.5
        value = (accuracy - by_chance) / root

        # derivatives of numerator and root; labels on the first axis, then predictions
        from_accuracy_CC = np.eye(answers.num_classes) - accuracy
        from_chance_CC = predicted_share_C[:, None] + label_share_C[None]
        from_chance_CC = from_chance_CC - 2 * by_chance
        from_label_C = (label_share_C - label_square) / (1 - label_square)
        from_predicted_C = (predicted_share_C - predicted_square) / (
            1 - predicted_square
        )
        influence_CC = (from_accuracy_CC - from_chance_CC) / root
        influence_CC += value * (from_label_C[:, None] + from_predicted_C[None])
        return score_of_confusion_matrix(answers, value, influence_CC)

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where a single class is predicted: another one makes MCC jump."""
        predicted_N = answers.predicted_N
        if (predicted_N == predicted_N[0]).all():
            return "a single class is predicted"
        return ""
