"""How much of a score is the luck of what was chosen by validation, such as a learning rate."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.groups import RowGroups

DRAWS = 4096
SEED = 0


class ChoiceOf(NamedTuple):
    """What other rows would have chosen."""

    share: float  # of all draws of the rows that chose, how many choose the same
    variance: float
    """Mean square of how far the score of what they choose is from that of what was chosen."""


def choice_of(
    right_CN: NDArray[Any],
    score_CK: NDArray[np.float64],
    groups: RowGroups | None = None,
) -> ChoiceOf:
    """What a choice between C candidates by N validation rows adds to the doubt of a score.

    Other rows would have chosen others. The means of the candidates on N other rows are drawn from
    the normal distribution that the rows show, the best of each draw is chosen, and its test score
    is so far from that of what was chosen. In simulated experiments the interval of a difference
    then holds that of the best rates in 94 of 100 cases or more, without it in 70 to 97
    (``bench_error_rates --of tuned``).

    >>> right_CN = np.array([[1, 1, 0, 1] * 50, [1, 0, 1, 1] * 50])
    >>> round(choice_of(right_CN, np.array([[0.75], [0.85]])).variance, 3)
    0.005

    Args:
        right_CN: whether each candidate was right on each row that chose.
        score_CK: test scores of every candidate under K seeds.
        groups: rows that belong together, which are drawn together then; None: every row alone.

    Source: the bootstrap of a selection: Efron 2014, "Estimation and accuracy after model
        selection"; here of the means, which are nearly normal.
    """
    mean_C = right_CN.mean(1, dtype=np.float64)
    if groups is None:
        covariance_CC = np.atleast_2d(np.cov(right_CN)) / right_CN.shape[1]
    else:
        beyond_CG = groups.beyond_share(right_CN)
        covariance_CC = (groups.correction_G * beyond_CG) @ beyond_CG.T
    drawn_MC = np.random.default_rng(SEED).multivariate_normal(
        mean_C, covariance_CC, DRAWS, method="eigh", check_valid="ignore"
    )
    best_MC = drawn_MC >= drawn_MC.max(1, keepdims=True) - 1e-12  # equals share a draw
    share_C = (best_MC / best_MC.sum(1, keepdims=True)).mean(0)
    test_C = score_CK.mean(1)
    variance = float(share_C @ (test_C - test_C[mean_C.argmax()]) ** 2)
    return ChoiceOf(float(share_C.max()), variance)
