"""What another training set would give: accuracies of several splits of the same rows.

J splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from gaam_decoder.stats.seeds import checked, within


@dataclass(frozen=True, slots=True)
class CorrectedT:
    """A mean difference over splits. Fractions, not percent."""

    splits: int
    difference: float
    interval: tuple[float, float]
    """95%."""
    p: float

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "splits": self.splits,
            "difference": self.difference,
            "ci95": list(self.interval),
            "p": self.p,
        }


def corrected_resampled_t(
    difference_J: NDArray[np.float64], test_per_train: float, *, most: float = 1.0
) -> CorrectedT | None:
    """The corrected resampled t test of differences over folds, or folds of several repeats.

    Splits share training rows, so that their differences vary less than those of training sets
    that share none: the variance of their mean is ``(1 / J + test / train)`` times that of one,
    not ``1 / J`` times. None for fewer than two splits.

    Args:
        difference_J: of every split.
        test_per_train: test rows of a split per training row: ``1 / (folds - 1)``.
        most: largest difference that can be; of two accuracies 1.

    Raises:
        ValueError: NaN or infinity.

    Source: Nadeau and Bengio 2003, "Inference for the generalization error"; for repeated
        cross-validation: Bouckaert and Frank 2004.
    """
    splits = len(checked(difference_J))
    if splits < 2:
        return None
    mean = float(difference_J.mean())
    error = float(np.sqrt((1 / splits + test_per_train) * np.var(difference_J, ddof=1)))
    p = float(mean == 0) if error < 1e-15 else 2 * float(stdtr(splits - 1, -abs(mean) / error))
    half = float(stdtrit(splits - 1, 0.975)) * error
    interval = within((mean - half, mean + half), -most, most)
    assert interval is not None
    return CorrectedT(splits, mean, interval, p)
