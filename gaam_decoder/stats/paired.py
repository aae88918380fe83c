"""Two mechanisms compared on the same seeds and the same test rows.

S seeds that both have, N test rows, M comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.seeds import checked

Floats = NDArray[np.float64]
EXACT_SEEDS = 20
DRAWS = 100_000
FEW = 100
"""Rows on which two mechanisms differ; with fewer, the exact test over rows has to agree."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Two-sided p-value of a sign-flip test and how it was found."""

    p: float
    exact: bool
    """False: estimated from ``DRAWS`` random sign patterns."""


def sign_flip(difference_S: Floats) -> SignFlip:
    """Test whether paired differences are symmetric about zero.

    If neither mechanism is better, every difference could as well have the other sign. p is the
    share of all ``2**S`` sign patterns under which the mean is at least as far from zero as the one
    that was seen. Above 20 seeds: ``(1 + hits) / (1 + draws)`` over 100,000 random patterns, from a
    fixed random state.

    Raises:
        ValueError: no difference at all, NaN or infinity.
    """
    if len(difference_S) == 0:
        raise ValueError("a sign-flip test needs at least one difference")
    size_S = np.abs(checked(difference_S))
    # sums of the same numbers in another order differ in their last bits and count as equal
    threshold = abs(float(difference_S.sum())) - 1e-9 * float(size_S.sum())
    if len(size_S) <= EXACT_SEEDS:
        half = len(size_S) // 2
        left, right = _signed_sums(size_S[:half]), np.sort(_signed_sums(size_S[half:]))
        # |left + right| >= threshold, for all pairs, by where the two limits fall among the right
        above = len(right) - np.searchsorted(right, threshold - left, "left")
        below = np.searchsorted(right, -threshold - left, "right")
        # where threshold <= 0, everything is counted twice
        count = len(left) * len(right) if threshold <= 0 else int(above.sum() + below.sum())
        return SignFlip(count / 2 ** len(size_S), exact=True)
    generator = np.random.default_rng(0)
    hits = 0
    for start in range(0, DRAWS, 10_000):
        draws = min(10_000, DRAWS - start)
        sign_RS = generator.integers(0, 2, (draws, len(size_S)), dtype=np.int8) * 2 - 1
        hits += int(np.sum(np.abs(sign_RS @ size_S) >= threshold))
    return SignFlip((1 + hits) / (1 + DRAWS), exact=False)


def _signed_sums(size_S: Floats) -> Floats:
    """Sums of all sign patterns, (2**S,)."""
    sums = np.zeros(1)
    for size in size_S:
        sums = np.concatenate([sums - size, sums + size])
    return sums


def sign_flip_of_rows(difference_N: NDArray[Any]) -> float:
    """Exact sign-flip p over rows, the seeds taken as given; 0 where many rows differ.

    If no mechanism is better, the differences of a row could as well have the other sign, those of
    all seeds together.

    Args:
        difference_N: sums over the seeds, whole numbers where every test is right or wrong.
    """
    differ_N = difference_N[difference_N != 0]
    if len(differ_N) >= FEW:
        return 0.0
    if not len(differ_N):
        return 1.0
    if not np.issubdtype(differ_N.dtype, np.integer):
        return sign_flip(differ_N.astype(np.float64)).p
    share = np.ones(1)
    for size in np.abs(differ_N).tolist():  # of all sums, one row after the other
        share, before = np.zeros(len(share) + 2 * size), share / 2
        share[: len(before)] += before
        share[-len(before) :] += before
    sums = np.arange(len(share)) - len(share) // 2
    return float(share[np.abs(sums) >= abs(differ_N.sum())].sum())


def holm(p_M: Floats) -> Floats:
    """Holm's adjusted p-values, which hold for all M tests together, in the order given.

    The k-th smallest is multiplied by ``M - k + 1``; none is smaller than one before it, and none
    above 1. None of none.

    Raises:
        ValueError: what is no probability.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    if not ((p_M >= 0) & (p_M <= 1)).all():
        raise ValueError("a p-value is between 0 and 1")
    order = np.argsort(p_M, kind="stable")
    adjusted = np.maximum.accumulate(p_M[order] * np.arange(len(p_M), 0, -1))
    result = np.empty(len(p_M))
    result[order] = np.minimum(adjusted, 1)
    return result
