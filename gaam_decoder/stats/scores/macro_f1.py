"""Macro F1."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Found, Score


class MacroF1(Score):
    """Unweighted mean of F1 over the classes that occur in labels or predictions.

    F1 of a class is ``2 hits / (labels + predictions)``. A row of class y that is predicted as z
    changes ``F_c`` by ``(2 [y = z = c] - F_c ([y = c] + [z = c])) / (labels_c + predictions_c)``.
    """

    title = "macro-F1"

    def of(self, answers: Answers) -> Found:
        """The derivative of the mean in the weight of every row."""
        label_N, predicted_N = answers.labels, answers.predicted_N
        right_N = predicted_N == label_N
        either_C = answers.count_C + np.bincount(
            predicted_N, minlength=answers.num_classes
        )
        seen_C = either_C > 0
        hits_C = np.bincount(label_N[right_N], minlength=answers.num_classes)
        f1_C = 2 * hits_C / np.maximum(either_C, 1)
        value = float(f1_C[seen_C].mean())
        one_C = 1 / (seen_C.sum() * np.maximum(either_C, 1))
        less_C = f1_C * one_C
        change_N = 2 * one_C[label_N] * right_N - less_C[label_N] - less_C[predicted_N]
        most_C = answers.repeats * np.stack([(2 - f1_C) * one_C, less_C])[:, seen_C]
        return Found(
            value=value,
            by_row=value + answers.num_rows * change_N,
            unseen=float(np.sum(most_C**2)),
        )

    def why_no_claim(self, answers: Answers) -> str:
        """A class without test rows counts fully as soon as one row is predicted as it."""
        if (answers.count_C[answers.predicted_N] == 0).any():
            return "a class that no test row has is predicted, and by one row more or less F1 jumps"
        return ""
