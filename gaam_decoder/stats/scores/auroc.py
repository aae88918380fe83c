"""Area under the receiver operating characteristic."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import Answers, Floats, Score, SeedScore


class Auroc(Score):
    """Mean over the classes of the area of one class against the rest.

    The area is the probability that a row of the class has larger odds of the class
    than a row of the rest, with ties counted half. Rows of different folds are never
    ranked against one another, for different decoders gave their odds. The value of
    several folds is their mean, weighted by their rows.

    Numerics: rows are ranked by ``log p_c - log(1 - p_c)`` in float64, which does not
        saturate where p does.

    Source: contributions of rows: DeLong, DeLong and Clarke-Pearson 1988, "Comparing
        the areas under two or more correlated receiver operating characteristic
        curves". One against rest, unweighted: Provost and Domingos 2000. Folds: Forman
        and Scholz 2010, "Apples-to-apples in cross-validation studies".
    """

    # a temperature keeps the ranks of two classes, but not those of more
    title = "AUROC"

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """Rank the rows of every fold; None if all rows of a fold are of one class.

        The value is the mean of the contributions of all rows.
        """
        by_row_of_folds = []
        largest_change = 0.0
        for rows in answers.rows_of_folds:
            fold = _score_fold(answers.log_odds_NC[rows], answers.labels[rows])
            if fold is None:
                return None
            by_row_of_folds.append(fold.by_row_N)
            # a row that the test rows lack would be in one fold of every repeat
            share_of_fold = len(fold.by_row_N) / answers.num_rows
            weight = share_of_fold * answers.tests_per_row
            largest_change = max(largest_change, weight * fold.unseen_change)
        by_row_N = np.concatenate(by_row_of_folds)
        return SeedScore(
            value=float(by_row_N.mean()),
            by_row=by_row_N,
            unseen_change=largest_change,
        )


def _share_below(values: Floats, thresholds: Floats) -> Floats:
    """For each threshold the share of the values below it, with ties counted half."""
    ranked = np.sort(values)
    below = np.searchsorted(ranked, thresholds, "left")
    up_to = np.searchsorted(ranked, thresholds, "right")
    share: Floats = (below + up_to) / (2 * len(values))
    return share


class _FoldScore(NamedTuple):
    """The AUROC of one fold, as in ``SeedScore``."""

    by_row_N: Floats
    """A number for every row, whose mean is the AUROC."""
    unseen_change: float
    """Largest change of the AUROC by a row that the test rows lack."""


def _score_fold(odds_NC: Floats, label_N: NDArray[np.int64]) -> _FoldScore | None:
    """Rank the rows of one fold; None if all rows are of one class.

    Args:
        odds_NC: log-odds of every class, by which the rows are ranked.
        label_N: the classes of the rows.
    """
    count_C = np.bincount(label_N, minlength=odds_NC.shape[1])
    classes = np.flatnonzero((count_C > 0) & (count_C < len(label_N)))
    if not len(classes):
        return None
    auroc = 0.0
    # by how much every row moves the AUROC; the sum is 0
    change_N = np.zeros(len(label_N))
    largest_weight_own = 0.0
    largest_weight_rest = 0.0
    for positive_class in classes:
        # rank the rows of the class among those of the rest, and the reverse
        is_own_N = label_N == positive_class
        own_odds = odds_NC[is_own_N, positive_class]
        rest_odds = odds_NC[~is_own_N, positive_class]
        share_below_own = _share_below(rest_odds, own_odds)
        share_above_rest = 1 - _share_below(own_odds, rest_odds)

        # both shares have the area as their mean; a row moves the mean by the distance
        # of its share from the area, times the weight of the row
        area = float(share_below_own.mean())
        weight_own = 1 / (len(own_odds) * len(classes))
        weight_rest = 1 / (len(rest_odds) * len(classes))
        auroc += area / len(classes)
        change_N[is_own_N] += weight_own * (share_below_own - area)
        change_N[~is_own_N] += weight_rest * (share_above_rest - area)
        largest_weight_own = max(largest_weight_own, weight_own)
        largest_weight_rest = max(largest_weight_rest, weight_rest)
    return _FoldScore(
        # the mean over the rows divides by their number again
        by_row_N=auroc + len(label_N) * change_N,
        # The test rows may lack a row that is taken for another class. It is behind all
        # others of its class then, and ahead of all of the other class. A share is from
        # 0 to 1: each of the two changes the AUROC by at most its weight.
        unseen_change=largest_weight_own + largest_weight_rest,
    )
