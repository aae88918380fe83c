"""Regression: every row has K numbers, and decoders give an output for each.

Decoders learn targets of mean 0 and standard deviation 1; their outputs in evaluation
are in the unit of the data.

S seeds, N rows, K columns.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.targets.numbers import num_strata
from gaam_decoder.tasks.base import Targets, Task, in_float64

if TYPE_CHECKING:
    from torch import Tensor


class Regression(Task):
    """The predictions of decoders for rows of K numbers, and how good they are.

    Formula: ``R2 = 1/K sum_k (1 - sum_n (y_nk - f_nk)^2 / sum_n (y_nk - m_k)^2)``, m
    the mean of the same rows. A column whose numbers are all equal has 1 if the outputs
    are exact, else 0, as in scikit-learn and in the score ``r2``.
    """

    name = "regression"
    default_loss = "mse"
    default_score = "r2"
    score_title = "R2"
    in_percent = False
    standardises = True
    baseline_in_words = "the mean of the training rows alone"
    probe_head = "ridge"
    probe_in_words = "ridge regression"
    has_probabilities = False
    has_balance = False
    verb = "Predicts numbers of"
    outputs_in_words = "numbers"
    caveat = "whatever it is given gets numbers, also far from what it learned"
    sums_are_counts = False
    division_rule = "a share of all rows"

    def predictions(self, outputs: Any) -> Any:
        """The outputs themselves."""
        return outputs

    def batch_sums(self, output_SBK: "Tensor", targets: "Tensor") -> "Tensor":
        """Sum over the rows of 1 minus the mean squared error of the row, (S,).

        Targets have variance 1 in training: the mean over all rows is then R2.
        """
        squared_error_SB = (output_SBK - targets).square().mean(-1)
        return (1 - squared_error_SB).sum(1)

    def selection_score(self, outputs: Any, targets: Any) -> Any:
        """R2, averaged over the columns."""
        target = in_float64(targets)
        mean = target.mean(-2)[..., None, :]
        # sums of squares of every column: of the errors, and about the mean
        error_squares = ((target - in_float64(outputs)) ** 2).sum(-2)
        total_squares = ((target - mean) ** 2).sum(-2)

        # A flat column has 1 if the outputs are exact, else 0. Its total, which may be
        # above 0 because the mean of equal numbers is rounded, is replaced by 1.
        flat = is_flat(target)
        divisor = total_squares * ~flat + flat
        r2_of_others = (1 - error_squares / divisor) * ~flat
        r2_of_flat = flat & (error_squares == 0)
        return (r2_of_others + r2_of_flat).mean(-1)

    def row_contributions(self, output_NK: Targets, targets: Targets) -> NDArray[Any]:
        """``R2 + influence of the row``, (N,).

        The influence is the derivative of R2 in the weight of the row, times N. For one
        column it is ``N (d_n E / D - e_n) / D``: ``e_n`` is the squared error of the
        row, ``d_n`` the square of its deviation from the mean, ``E`` and ``D`` are
        their sums over the rows.
        """
        target_NK = targets.astype(np.float64)
        error_square_NK = (target_NK - output_NK) ** 2
        deviation_square_NK = (target_NK - target_NK.mean(0)) ** 2
        error_sum_K = error_square_NK.sum(0)
        deviation_sum_K = deviation_square_NK.sum(0)

        # a flat column, whose numbers are all equal, has no influence: no division by 0
        is_flat_K = is_flat(target_NK)
        divisor_K = np.where(is_flat_K, 1.0, deviation_sum_K)
        expected_error_NK = deviation_square_NK * error_sum_K / divisor_K
        derivative_NK = (expected_error_NK - error_square_NK) / divisor_K
        derivative_N = np.where(is_flat_K, 0.0, derivative_NK).mean(1)
        score = float(self.selection_score(output_NK, targets))
        contribution_N: NDArray[Any] = score + len(targets) * derivative_N
        return contribution_N

    def baseline_score(self, training: Targets, tested: Targets) -> float:
        """R2 of the mean of the training rows: 0 at most."""
        mean_K = training.mean(0, dtype=np.float64)
        return float(
            self.selection_score(np.broadcast_to(mean_K, tested.shape), tested)
        )

    def strata(self, targets: Targets) -> NDArray[np.int64]:
        """Ranges of the first number, see ``ranges_of_numbers``."""
        return ranges_of_numbers(targets[:, 0])

    def stratify_by(self, targets: Targets) -> NDArray[np.float64]:
        """The first number of every row, (N,)."""
        number_N: NDArray[np.float64] = targets[:, 0].astype(np.float64)
        return number_N

    def scored_targets(self, targets: Targets) -> Targets:
        """Targets in float64."""
        return targets.astype(np.float64)

    def learned_targets(self, targets: "Tensor") -> "Tensor":
        """Targets as floating-point numbers."""
        return targets.float()


def ranges_of_numbers(number_N: NDArray[Any]) -> NDArray[np.int64]:
    """The range of every number, (N,): up to ten, with nearly equally many rows."""
    num_ranges = num_strata(len(number_N))
    shares_below = np.arange(1, num_ranges) / num_ranges
    limits = np.quantile(number_N, shares_below)
    return np.searchsorted(limits, number_N, side="right").astype(np.int64)


def is_flat(targets: Any) -> Any:
    """Whether a column has equal numbers in all rows, (..., N, K) to (..., K)."""
    return (targets == targets[..., :1, :]).all(-2)
