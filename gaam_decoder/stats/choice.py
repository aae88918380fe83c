"""The variance of a score that comes from tuning on validation rows."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.groups import RowGroups

NUM_DRAWS = 4096  # of the mean validation results of all candidates
SEED = 0  # of the draws, which are therefore the same in every report
ROUNDING = 1e-6
"""Difference of drawn means that rounding explains, in standard errors."""


class SimulatedChoices(NamedTuple):
    """The candidates that other validation rows would choose, in simulated draws."""

    share: float
    """Share of the draws that choose the candidate that is chosen most often."""
    variance: float
    """Mean squared test-score difference between a drawn choice and the real one."""


def simulate_choices(
    result_CN: NDArray[Any],
    score_CK: NDArray[np.float64],
    chosen_index: int,
    groups: RowGroups | None = None,
) -> SimulatedChoices:
    """Estimate how much the score after tuning varies with the validation rows.

    Tuning chose the candidate with the best mean on N validation rows; among equal
    means, that with the lowest loss. Other rows might have chosen another one. Means
    on other rows are drawn from a normal distribution with the means and covariances
    of these rows. Each draw chooses its best candidate. The variance is the mean
    squared difference between the test scores of this candidate and the chosen one.
    Of a single row or group no covariance is known: each candidate counts as the choice
    of equally many draws.

    In simulated experiments, intervals with this variance hold the difference of two
    mechanisms with their best candidates in at least 94 of 100 cases. Without it, they
    hold it in 70 to 99 (``bench_error_rates --of tuned``).

    >>> result_CN = np.array([[1, 1, 1, 1, 0] * 40, [1, 0, 1, 1, 1] * 40])
    >>> result_CN[0, 0] = 0
    >>> choices = simulate_choices(result_CN, np.array([[0.75], [0.85]]), 1)
    >>> round(choices.variance, 3)
    0.005

    Args:
        result_CN: what each validation row gives to the mean of every candidate, such
            as whether the candidate was right. Larger is better.
        score_CK: test scores of every candidate under K seeds.
        chosen_index: position of the candidate that tuning chose.
        groups: rows that belong together and are drawn together; None: every row alone.

    Source: the bootstrap of a selection: Efron 2014, "Estimation and accuracy after
        model selection"; here of the means, which are nearly normal.
    """
    num_candidates, num_rows = result_CN.shape
    num_units = num_rows if groups is None else len(groups)
    if num_units > 1:
        share_C = _shares_of_draws(result_CN, groups)
    else:
        share_C = np.full(num_candidates, 1 / num_candidates)
    test_score_C = score_CK.mean(1)
    difference_C = test_score_C - test_score_C[chosen_index]
    return SimulatedChoices(
        share=float(share_C.max()), variance=float(share_C @ difference_C**2)
    )


def _shares_of_draws(
    result_CN: NDArray[Any], groups: RowGroups | None
) -> NDArray[np.float64]:
    """The share of draws that choose each candidate, (C,).

    The arguments are those of ``simulate_choices``.
    """
    mean_C = result_CN.mean(1, dtype=np.float64)
    # covariance of the means of the candidates
    if groups is None:
        num_rows = result_CN.shape[1]
        covariance_CC = np.atleast_2d(np.cov(result_CN)) / num_rows
    else:
        effect_CG = groups.effects_on_mean(result_CN)
        covariance_CC = (groups.variance_factor_G * effect_CG) @ effect_CG.T
    drawn_mean_MC = np.random.default_rng(SEED).multivariate_normal(
        mean_C, covariance_CC, NUM_DRAWS, method="eigh", check_valid="ignore"
    )

    # Each of M draws chooses its best candidate. Equally good ones share the draw: the
    # drawn means of candidates with the same results differ by rounding.
    largest_variance = float(covariance_CC.diagonal().max())
    tolerance = ROUNDING * math.sqrt(largest_variance)
    is_best_MC = drawn_mean_MC >= drawn_mean_MC.max(1, keepdims=True) - tolerance
    share_MC = is_best_MC / is_best_MC.sum(1, keepdims=True)
    share_C: NDArray[np.float64] = share_MC.mean(0)
    return share_C
