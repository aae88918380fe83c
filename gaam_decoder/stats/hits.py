"""Which test rows each seed is right on, and how that differs between two mechanisms.

S seeds that both have, N test rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Hits = NDArray[np.bool_] | NDArray[np.floating[Any]]
MOST_TESTS = 64
"""Of one row, in repeated cross-validations."""


def difference(hits: NDArray[Any], baseline_hits: NDArray[Any]) -> NDArray[Any]:
    """Right of one minus right of the other: int8 of truth values, else float64.

    Args:
        hits: (S, N), whether each seed is right on each row, or the share of several tests of it.
        baseline_hits: (S, N), the same of the baseline.

    Raises:
        ValueError: not the same shape, no seed, no row, or what is not between 0 and 1.
    """
    if hits.shape != baseline_hits.shape or hits.ndim != 2 or not hits.size:
        raise ValueError("hits of both, (seeds, rows), one of each at least")
    for one in (hits, baseline_hits):
        if one.dtype.kind not in "biuf" or not (one.min() >= 0 and one.max() <= 1):
            raise ValueError("hits are true or false, or finite shares from 0 to 1")
    kind = np.int8 if hits.dtype == baseline_hits.dtype == np.bool_ else np.float64
    return hits.astype(kind) - baseline_hits.astype(kind)


def whole(difference_SN: NDArray[Any]) -> NDArray[Any]:
    """The same as whole numbers, of shares of a few tests of every row; or as it is."""
    if difference_SN.dtype == np.int8:
        return difference_SN
    for tests in range(1, MOST_TESTS + 1):
        whole_SN = np.rint(difference_SN * tests)
        if np.abs(difference_SN * tests - whole_SN).max() < 1e-9:
            return whole_SN.astype(np.int64)
    return difference_SN
