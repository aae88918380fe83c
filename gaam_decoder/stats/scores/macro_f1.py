"""Macro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class MacroF1(Score):
    """Unweighted mean of F1 over the classes among the labels or predictions.

    F1 of a class is ``2 hits / (labels + predictions)``. A row of class y with the
    predicted class z changes ``F_c`` by
    ``(2 [y = z = c] - F_c ([y = c] + [z = c])) / (labels_c + predictions_c)``.
    """

    title = "macro-F1"

    def of(self, answers: Answers) -> SeedScore:
        """The value plus the derivative of the mean in the weight of every row."""
        label_N = answers.labels
        predicted_N = answers.predicted_N
        right_N = answers.right_N
        predicted_C = np.bincount(predicted_N, minlength=answers.num_classes)
        either_C = answers.count_C + predicted_C
        seen_C = either_C > 0
        hits_C = np.bincount(label_N[right_N], minlength=answers.num_classes)
        f1_C = 2 * hits_C / np.maximum(either_C, 1)
        value = float(f1_C[seen_C].mean())

        # a hit of a row raises the mean, its label and its prediction lower it
        weight_C = 1 / (seen_C.sum() * np.maximum(either_C, 1))
        loss_C = f1_C * weight_C
        gain_N = 2 * weight_C[label_N] * right_N
        change_N = gain_N - loss_C[label_N] - loss_C[predicted_N]
        largest = np.stack([(2 - f1_C) * weight_C, loss_C])
        largest_seen = answers.repeats * largest[:, seen_C]
        return SeedScore(
            value=value,
            by_row=value + answers.num_rows * change_N,
            unseen=float(np.sum(largest_seen**2)),
        )

    def why_no_claim(self, answers: Answers) -> str:
        """One prediction of a class without test rows makes macro-F1 jump."""
        if (answers.count_C[answers.predicted_N] == 0).any():
            return (
                "a class without test rows is predicted, "
                "and one row more or less makes F1 jump"
            )
        return ""
