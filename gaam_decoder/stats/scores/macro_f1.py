"""Macro F1.

N test rows, C classes or labels.
"""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, by_influence


class MacroF1(Score):
    """Unweighted mean of F1 over the classes among the labels or predictions.

    F1 of a class is ``2 hits / (labels + predictions)``. A row of class y with the
    predicted class z changes ``F_c`` by
    ``(2 [y = z = c] - F_c ([y = c] + [z = c])) / (labels_c + predictions_c)``.

    Of label sets it is the mean over the labels that a row has or gets. Either allows a
    verdict: F1 is a ratio of means.
    """

    tasks = ("classification", "multi-label")
    title = "macro-F1"

    def of(self, answers: Answers) -> SeedScore | None:
        """The value plus the derivative of the mean in the weight of every row."""
        if answers.labels.ndim == 2:
            return _of_label_sets(answers)
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
        if answers.labels.ndim == 2:
            has_rows_K = answers.labels.any(0)
            if (answers.predicted_NK.any(0) & ~has_rows_K).any():
                return (
                    "a label that no test row has is predicted, "
                    "and one row more or less makes F1 jump"
                )
            return ""
        if (answers.count_C[answers.predicted_N] == 0).any():
            return (
                "a class without test rows is predicted, "
                "and one row more or less makes F1 jump"
            )
        return ""


def _of_label_sets(answers: Answers) -> SeedScore | None:
    """Macro F1 of label sets; None if no row has or gets a label."""
    predicted_NC = answers.predicted_NK
    label_NC = answers.labels.astype(bool)
    either_NC = predicted_NC.astype(np.int64) + label_NC
    seen_C = either_NC.any(0)
    if not seen_C.any():
        return None
    either_NC = either_NC[:, seen_C]
    hit_NC = (predicted_NC & label_NC)[:, seen_C]
    mean_C = either_NC.mean(0)
    f1_C = 2 * hit_NC.mean(0) / mean_C

    # every label gives a row its share of the mean
    weight_C = 1 / (len(f1_C) * mean_C)
    change_N = (weight_C * (2 * hit_NC - f1_C * either_NC)).sum(1)
    largest = np.stack([(2 - f1_C) * weight_C, f1_C * weight_C])
    return by_influence(answers, float(f1_C.mean()), change_N, largest)
