"""Area under the receiver operating characteristic."""

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.scores.base import Answers, Floats, Found, Score


class Auroc(Score):
    """Mean over the classes of the area of one against the rest.

    Of a class: the chance that a row of it has larger odds of it than a row of the rest, ties
    counted half. Rows of different folds are never ranked against one another, for different
    decoders gave their odds; the value is then the mean over the folds, by their rows.

    Numerics: rows are ranked by ``log p_c - log(1 - p_c)`` in float64, which does not saturate
        where p does.

    Source: what every row adds: DeLong, DeLong and Clarke-Pearson 1988, "Comparing the areas under
        two or more correlated receiver operating characteristic curves". One against rest,
        unweighted: Provost and Domingos 2000. Folds: Forman and Scholz 2010, "Apples-to-apples in
        cross-validation studies".
    """

    title = "AUROC"  # of two classes it does not matter; of more, the odds of rows change places

    def of(self, answers: Answers) -> Found | None:
        """Placements of every row among the rows of the other side."""
        by_row, unseen, start = [], 0.0, 0
        for size in answers.sizes or (answers.num_rows,):
            rows, share = slice(start, start + size), size / answers.num_rows
            start += size
            part = _of_part(answers.log_odds_NC[rows], answers.labels[rows])
            if part is None:
                return None
            by_row.append(part[0])
            unseen += part[1] * (share * answers.repeats) ** 2
        by_row_N = np.concatenate(by_row)
        return Found(value=float(by_row_N.mean()), by_row=by_row_N, unseen=unseen)


def _below(of: Floats, than: Floats) -> Floats:
    """For each of ``than`` the share of ``of`` that is smaller, equal ones counted half."""
    ranked = np.sort(of)
    both = np.searchsorted(ranked, than, "left") + np.searchsorted(
        ranked, than, "right"
    )
    share: Floats = both / (2 * len(of))
    return share


def _of_part(
    odds_NC: Floats, label_N: NDArray[np.int64]
) -> tuple[Floats, float] | None:
    """What every row adds, and what one can change; None where all rows are of one class."""
    count_C = np.bincount(label_N, minlength=odds_NC.shape[1])
    there = np.flatnonzero((count_C > 0) & (count_C < len(label_N)))
    if not len(there):
        return None
    change_N, value, unseen = np.zeros(len(label_N)), 0.0, 0.0
    for of_class in there:
        own_N = label_N == of_class
        own, rest = odds_NC[own_N, of_class], odds_NC[~own_N, of_class]
        above_own, above_rest = _below(rest, own), 1 - _below(own, rest)
        area = float(above_own.mean())
        weight_own, weight_rest = (
            1 / (len(own) * len(there)),
            1 / (len(rest) * len(there)),
        )
        value += area / len(there)
        change_N[own_N] += weight_own * (above_own - area)
        change_N[~own_N] += weight_rest * (above_rest - area)
        unseen += weight_own**2 + weight_rest**2
    return value + len(label_N) * change_N, unseen
