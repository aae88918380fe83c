"""Rows in bins by the probability of their predicted class, for calibration.

N rows, K labels, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Floats

BINS = 15  # of equal width, like Guo et al. 2017


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibrationBins:
    """Rows in bins by the probability of their predicted class; B bins.

    Of label sets, every label of every row counts as a row, which is right if the row
    has the label.
    """

    num_rows_B: Floats = field(default_factory=lambda: np.zeros(BINS))
    num_right_B: Floats = field(default_factory=lambda: np.zeros(BINS))
    """Number of rows that are right."""
    probability_sum_B: Floats = field(default_factory=lambda: np.zeros(BINS))
    """Sum of the probabilities of the predicted classes."""

    def __add__(self, other: CalibrationBins) -> CalibrationBins:
        """The rows of both, such as of two seeds."""
        return CalibrationBins(
            num_rows_B=self.num_rows_B + other.num_rows_B,
            num_right_B=self.num_right_B + other.num_right_B,
            probability_sum_B=self.probability_sum_B + other.probability_sum_B,
        )


def calibration_bins(answers: Answers) -> CalibrationBins:
    """Sort the rows of a seed by the probability of their predicted class.

    A bin includes its upper end, and not its lower end.
    """
    if answers.labels.ndim == 2:
        probability_N = answers.p_NK.reshape(-1)
        right_N = answers.labels.reshape(-1)
    else:
        probability_N = np.exp(answers.log_p_NC.max(-1))
        right_N = answers.right_N
    bin_N = np.ceil(probability_N * BINS).astype(np.int64) - 1
    bin_N = np.clip(bin_N, 0, BINS - 1)
    num_rows_B = np.bincount(bin_N, minlength=BINS)
    num_right_B = np.bincount(bin_N, weights=right_N, minlength=BINS)
    probability_sum_B = np.bincount(bin_N, weights=probability_N, minlength=BINS)
    return CalibrationBins(
        num_rows_B=num_rows_B.astype(np.float64),
        num_right_B=num_right_B.astype(np.float64),
        probability_sum_B=probability_sum_B.astype(np.float64),
    )
