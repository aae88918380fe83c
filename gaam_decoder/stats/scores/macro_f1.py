"""Macro F1.

N test rows, C classes or labels.
"""

import numpy as np

from gaam_decoder.stats.scores.base import (
    Answers,
    Score,
    SeedScore,
    score_of_label_sets,
)


class MacroF1(Score):
    """Unweighted mean of F1 over the classes among the labels or predictions.

    F1 of a class c is ``F_c = 2 hits / (labels + predictions)``. A row of class y with
    the predicted class z changes it by
    ``(2 [y = z = c] - F_c ([y = c] + [z = c])) / (labels + predictions)``: the
    derivative in the weight of the row.

    Of label sets it is the mean over the labels that a row has or gets. A test over
    rows holds for either, because F1 is a ratio of means.
    """

    tasks = ("classification", "multi-label")
    title = "macro-F1"

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """Macro F1 of a seed, and the influence of every row on it.

        None for label sets if no row has or gets a label.
        """
        if answers.labels.ndim == 2:
            return _macro_f1_of_label_sets(answers)
        label_N = answers.labels
        predicted_N = answers.predicted_N
        right_N = answers.right_N
        predicted_C = np.bincount(predicted_N, minlength=answers.num_classes)
        # labels and predictions together, the denominator of F1
        num_both_C = answers.count_C + predicted_C
        occurs_C = num_both_C > 0
        hits_C = np.bincount(label_N[right_N], minlength=answers.num_classes)
        f1_C = 2 * hits_C / np.maximum(num_both_C, 1)
        value = float(f1_C[occurs_C].mean())

        # a hit of a row raises the mean, its label and its prediction lower it
        weight_C = 1 / (occurs_C.sum() * np.maximum(num_both_C, 1))
        fall_C = f1_C * weight_C
        rise_N = 2 * weight_C[label_N] * right_N
        change_N = rise_N - fall_C[label_N] - fall_C[predicted_N]

        # The test rows may lack a row. A hit in place of a miss raises F1 of its class,
        # and that of the class for which it would be taken.
        rise_of_own_C = (2 - f1_C) * weight_C
        largest_change = float(rise_of_own_C[occurs_C].max() + fall_C[occurs_C].max())
        return SeedScore(
            value=value,
            by_row=value + answers.num_rows * change_N,
            unseen_change=answers.tests_per_row * largest_change,
        )

    def why_no_claim(self, answers: Answers) -> str:
        """A reason where a class without test rows is predicted; else empty.

        One such prediction makes macro F1 jump, because the class joins the mean.
        """
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


def _macro_f1_of_label_sets(answers: Answers) -> SeedScore | None:
    """Macro F1 of label sets; None if no row has or gets a label."""
    predicted_NC = answers.predicted_NK
    label_NC = answers.labels.astype(bool)
    # 2 where a row has and gets the label, 1 where it only has it or only gets it
    has_plus_gets_NC = predicted_NC.astype(np.int64) + label_NC
    occurs_C = has_plus_gets_NC.any(0)
    if not occurs_C.any():
        return None
    has_plus_gets_NC = has_plus_gets_NC[:, occurs_C]
    hit_NC = (predicted_NC & label_NC)[:, occurs_C]
    denominator_C = has_plus_gets_NC.mean(0)
    f1_C = 2 * hit_NC.mean(0) / denominator_C

    # derivative of the mean F1 in the weight of a row: the sum over its labels
    weight_C = 1 / (len(f1_C) * denominator_C)
    influence_N = (weight_C * (2 * hit_NC - f1_C * has_plus_gets_NC)).sum(1)

    # hits in place of misses
    change_N = label_NC[:, occurs_C] @ ((2 - f1_C) * weight_C)
    return score_of_label_sets(answers, float(f1_C.mean()), influence_N, change_N)
