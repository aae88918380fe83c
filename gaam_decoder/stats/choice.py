"""The variance of a score that comes from tuning on validation rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.groups import RowGroups

NUM_DRAWS = 4096  # of the mean validation results of all candidates
SEED = 0  # of the draws, which are therefore the same in every report


class SimulatedChoices(NamedTuple):
    """The candidates that other validation rows would choose, in simulated draws."""

    share: float
    """Share of the draws that choose the candidate that is chosen most often."""
    variance: float
    """Mean squared test-score difference between a drawn choice and the real one."""


def simulate_choices(
    right_CN: NDArray[Any],
    score_CK: NDArray[np.float64],
    groups: RowGroups | None = None,
) -> SimulatedChoices:
    """Estimate the variance of a test score from a choice among C candidates.

    N validation rows chose the real candidate, and other rows would choose others. The
    means of the candidates on N other rows are drawn from the normal distribution that
    the rows show. Each draw chooses its best candidate, and the variance follows from
    the test scores of these choices.

    In simulated experiments, intervals of a difference with this variance hold the
    difference of the best candidates in at least 94 of 100 cases. Without it, they hold
    it in 70 to 99 (``bench_error_rates --of tuned``).

    >>> right_CN = np.array([[1, 1, 0, 1] * 50, [1, 0, 1, 1] * 50])
    >>> round(simulate_choices(right_CN, np.array([[0.75], [0.85]])).variance, 3)
    0.005

    Args:
        right_CN: whether each candidate was right on each validation row.
        score_CK: test scores of every candidate under K seeds.
        groups: rows that belong together and are drawn together; None: every row alone.

    Source: the bootstrap of a selection: Efron 2014, "Estimation and accuracy after
        model selection"; here of the means, which are nearly normal.
    """
    mean_C = right_CN.mean(1, dtype=np.float64)
    # covariance of the means of the candidates
    if groups is None:
        num_rows = right_CN.shape[1]
        covariance_CC = np.atleast_2d(np.cov(right_CN)) / num_rows
    else:
        effect_CG = groups.effects_on_mean(right_CN)
        covariance_CC = (groups.variance_factor_G * effect_CG) @ effect_CG.T
    drawn_mean_MC = np.random.default_rng(SEED).multivariate_normal(
        mean_C, covariance_CC, NUM_DRAWS, method="eigh", check_valid="ignore"
    )

    # each of M draws chooses its best candidate; equally good ones share the draw
    is_best_MC = drawn_mean_MC >= drawn_mean_MC.max(1, keepdims=True) - 1e-12
    share_C = (is_best_MC / is_best_MC.sum(1, keepdims=True)).mean(0)
    test_score_C = score_CK.mean(1)
    real_choice = mean_C.argmax()
    error_C = test_score_C - test_score_C[real_choice]
    return SimulatedChoices(
        share=float(share_C.max()), variance=float(share_C @ error_C**2)
    )
