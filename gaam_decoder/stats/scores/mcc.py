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
        """MCC of a seed, and the influence of every row on it.

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
        label_variance = 1 - label_square
        predicted_variance = 1 - predicted_square
        root = (label_variance * predicted_variance) ** 0.5
        value = (accuracy - by_chance) / root

        # A row's influence is the derivative of the value in the row's weight. For
        # value = numerator / root it is d numerator / root - value d log root. Labels
        # are on the first axis, predictions on the second.
        d_accuracy_CC = np.eye(answers.num_classes) - accuracy
        d_chance_CC = predicted_share_C[:, None] + label_share_C[None]
        d_chance_CC = d_chance_CC - 2 * by_chance
        # log root = (log label_variance + log predicted_variance) / 2
        d_log_root_of_label_C = (label_square - label_share_C) / label_variance
        d_log_root_of_predicted_C = (
            predicted_square - predicted_share_C
        ) / predicted_variance
        d_log_root_CC = d_log_root_of_label_C[:, None] + d_log_root_of_predicted_C[None]
        influence_CC = (d_accuracy_CC - d_chance_CC) / root - value * d_log_root_CC
        return score_of_confusion_matrix(answers, value, influence_CC)

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where a single class is predicted: another one makes MCC jump."""
        predicted_N = answers.predicted_N
        if (predicted_N == predicted_N[0]).all():
            return "a single class is predicted"
        return ""
