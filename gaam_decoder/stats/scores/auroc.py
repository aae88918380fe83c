"""Area under the receiver operating characteristic."""

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

    def of(self, answers: Answers) -> SeedScore | None:
        """Rank every row among the rows of the other side, fold by fold."""
        by_fold = []
        unseen = 0.0
        start = 0
        for size in answers.sizes or (answers.num_rows,):
            rows = slice(start, start + size)
            start += size
            fold = _areas_of_fold(answers.log_odds_NC[rows], answers.labels[rows])
            if fold is None:
                return None
            by_row_of_fold, unseen_of_fold = fold
            by_fold.append(by_row_of_fold)
            share = size / answers.num_rows
            unseen += unseen_of_fold * (share * answers.repeats) ** 2
        by_row_N = np.concatenate(by_fold)
        return SeedScore(value=float(by_row_N.mean()), by_row=by_row_N, unseen=unseen)


def _share_below(values: Floats, thresholds: Floats) -> Floats:
    """For each threshold the share of the values below it, with ties counted half."""
    ranked = np.sort(values)
    below = np.searchsorted(ranked, thresholds, "left")
    up_to = np.searchsorted(ranked, thresholds, "right")
    share: Floats = (below + up_to) / (2 * len(values))
    return share


def _areas_of_fold(
    odds_NC: Floats, label_N: NDArray[np.int64]
) -> tuple[Floats, float] | None:
    """The contribution of every row, and the sum ``unseen`` of ``SeedScore``.

    None if all rows are of one class.
    """
    count_C = np.bincount(label_N, minlength=odds_NC.shape[1])
    classes = np.flatnonzero((count_C > 0) & (count_C < len(label_N)))
    if not len(classes):
        return None
    change_N = np.zeros(len(label_N))
    value = 0.0
    unseen = 0.0
    for positive in classes:
        # rank the rows of the class among those of the rest, and the reverse
        own_N = label_N == positive
        own = odds_NC[own_N, positive]
        rest = odds_NC[~own_N, positive]
        above_own = _share_below(rest, own)
        above_rest = 1 - _share_below(own, rest)

        # a row moves the area by its distance from the mean rank of its side
        area = float(above_own.mean())
        weight_own = 1 / (len(own) * len(classes))
        weight_rest = 1 / (len(rest) * len(classes))
        value += area / len(classes)
        change_N[own_N] += weight_own * (above_own - area)
        change_N[~own_N] += weight_rest * (above_rest - area)
        unseen += weight_own**2 + weight_rest**2
    return value + len(label_N) * change_N, unseen
