"""Balanced accuracy."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class BalancedAccuracy(Score):
    """Unweighted mean of the recall over the classes with test rows."""

    title = "balanced accuracy"

    def seed_score(self, answers: Answers) -> SeedScore:
        """The mean recall of a seed, and the contribution of every row to it.

        The contribution of a row of class c is ``value + N / (C n_c) (right -
        recall_c)``, with ``n_c`` the number of rows of the class, and ``right`` 1 for a
        right row, else 0. The mean of the contributions is the value.
        """
        right_N = answers.right_N
        count_C = answers.count_C
        has_rows_C = count_C > 0
        # change of the value by a right row of each class
        weight_C = 1 / (has_rows_C.sum() * np.maximum(count_C, 1))
        hits_C = np.bincount(answers.labels, right_N, minlength=len(count_C))
        recall_C = hits_C / np.maximum(count_C, 1)
        value = float(recall_C[has_rows_C].mean())
        from_recall_N = right_N - recall_C[answers.labels]
        by_row_N = value + answers.num_rows * weight_C[answers.labels] * from_recall_N
        # the test rows may lack a row that all seeds get wrong, of the smallest class
        largest_change = answers.tests_per_row * float(weight_C[has_rows_C].max())
        return SeedScore(
            value=value,
            by_row=by_row_N,
            unseen_change=largest_change,
        )
