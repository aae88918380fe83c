"""Two mechanisms compared on the same seeds and the same test rows; and what is a verdict.

S seeds that both have, N test rows, M comparisons, J splits.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from gaam_decoder.stats.limits import ALPHA
from gaam_decoder.stats.seeds import (
    checked,
    minimum_detectable_difference,
    seeds_needed,
    standard_deviation,
    t_interval,
    within,
)

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "equivalent", "undecided", "no claim"]
NO_CLAIM: Verdict = "no claim"
"""The verdict where the score or the data allow no test, which more seeds or rows would not change
as they change what is undecided."""
LEAST_SEEDS = seeds_needed(1, alpha=ALPHA)
"""With fewer, no sign-flip test can give p < 0.05, whatever the seeds say."""
EXACT_SEEDS = 20
DRAWS = 100_000
MOST_SUMS = 2**20  # of large groups; more are not counted out
FEW = 100  # rows on which two mechanisms differ; with fewer, the exact test over rows has to agree


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Two-sided p-value of a sign-flip test and how it was found."""

    p: float
    exact: bool  # False: estimated from ``DRAWS`` random sign patterns


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
        count = (
            len(left) * len(right) if threshold <= 0 else int(above.sum() + below.sum())
        )
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
    all seeds together; those of a group, where groups are the unit.

    Args:
        difference_N: sums over the seeds, and over the rows of a group; whole numbers where every
            test is right or wrong.
    """
    differ_N = difference_N[difference_N != 0]
    if len(differ_N) >= FEW:
        return 0.0
    if not len(differ_N):
        return 1.0
    whole = np.issubdtype(differ_N.dtype, np.integer)
    if not whole or int(np.abs(differ_N).sum()) > MOST_SUMS:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class OnTheseRows:
    """The comparison over seeds alone: the test rows are taken as given."""

    std: float | None  # of the differences of the seeds
    interval: tuple[float, float] | None  # 95% t interval
    sign_flip: SignFlip | None  # None for fewer than 6 seeds
    p_equivalent: float | None  # of two one-sided paired t tests against the margin
    detectable: (
        float | None
    )  # smallest true difference that so many seeds find with a power of 80%
    verdict: Verdict


def on_these_rows(
    difference_S: NDArray[np.float64],
    margin: float,
    *,
    most: float = 1.0,
    larger_is_better: bool = True,
) -> OnTheseRows:
    """What the differences of S seeds say, against zero and against the margin.

    Args:
        difference_S: of every seed.
        margin: largest that does not matter.
        most: largest that can be; of two accuracies 1.
        larger_is_better: False of losses.
    """
    num_seeds, mean = len(difference_S), float(difference_S.mean())
    sd = standard_deviation(difference_S)
    flipped = sign_flip(difference_S) if num_seeds >= LEAST_SEEDS else None
    equivalent = None
    if sd is not None:
        error = sd / num_seeds**0.5
        inside = margin - abs(mean)
        equivalent = (
            float(stdtr(num_seeds - 1, -inside / error))
            if error
            else float(inside <= 0)
        )
    detectable = minimum_detectable_difference(difference_S, alpha=ALPHA)
    return OnTheseRows(
        std=sd,
        interval=within(t_interval(difference_S), -most, most),
        sign_flip=flipped,
        p_equivalent=equivalent,
        # two scores are never further apart: then no difference would be found
        detectable=None if detectable is None or detectable > most else detectable,
        verdict=verdict_of(
            num_seeds,
            mean if larger_is_better else -mean,
            flipped.p if flipped else None,
            equivalent,
        ),
    )


def verdict_of(
    num_seeds: int, mean: float, p: float | None, equivalent: float | None
) -> Verdict:
    """Which it is, by the p of a difference and that of equivalence."""
    if num_seeds < LEAST_SEEDS:
        return "undecided"
    if p is not None and p < ALPHA:
        return "better" if mean > 0 else "worse"
    return (
        "equivalent" if equivalent is not None and equivalent < ALPHA else "undecided"
    )


@dataclass(frozen=True, slots=True)
class CorrectedT:
    """A mean difference over splits. Fractions, not percent."""

    splits: int
    difference: float
    interval: tuple[float, float]  # 95%
    p: float

    def to_dict(self) -> dict[str, Any]:
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
    p = (
        float(mean == 0)
        if error < 1e-15
        else 2 * float(stdtr(splits - 1, -abs(mean) / error))
    )
    half = float(stdtrit(splits - 1, 0.975)) * error
    interval = within((mean - half, mean + half), -most, most)
    assert interval is not None
    return CorrectedT(splits, mean, interval, p)
