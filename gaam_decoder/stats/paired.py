"""Tests of paired differences: sign flips, Holm's correction, t tests, and the verdict.

A pair is a mechanism and a baseline under the same seed, or on the same test row.

S seeds of both mechanisms, N test rows, M comparisons, J splits.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from gaam_decoder.stats.mean_test import ALPHA
from gaam_decoder.stats.seeds import (
    minimum_detectable_difference,
    require_finite,
    seeds_needed,
    standard_deviation,
    t_interval,
    within,
)

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "equivalent", "undecided", "no claim"]
NO_CLAIM: Verdict = "no claim"
"""The verdict if the score or the data allow no test. Unlike "undecided", it does not
change with more seeds or rows."""
LEAST_SEEDS = seeds_needed(num_comparisons=1, alpha=ALPHA)
"""With fewer seeds no sign-flip test can give p < 0.05."""
EXACT_SEEDS = 20  # with more, random sign patterns replace all patterns
DRAWS = 100_000  # number of random sign patterns
DRAWS_AT_ONCE = 10_000  # sign patterns in memory
MOST_SUMS = 2**20  # largest sum of sizes whose distribution is computed exactly
FEW_DIFFERENT_ROWS = 100  # with fewer, the exact test over rows has to agree


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Two-sided p-value of a sign-flip test, and whether it is exact."""

    p: float
    exact: bool  # False: estimated from ``DRAWS`` random sign patterns


def sign_flip(difference_S: Floats) -> SignFlip:
    """Test whether paired differences are symmetric about zero.

    If neither mechanism is better, every difference could as well have the other sign.
    p is the share of all ``2**S`` sign patterns whose mean is at least as far from zero
    as the observed mean. Above 20 seeds, 100,000 random patterns from a fixed random
    state replace them, and p is ``(1 + count) / (1 + draws)``.

    Raises:
        ValueError: no difference at all, NaN or infinity.
    """
    if len(difference_S) == 0:
        raise ValueError("a sign-flip test needs at least one difference")
    size_S = np.abs(require_finite(difference_S))
    # a pattern as far from zero as the observed one may be rounded to slightly less
    threshold = abs(float(difference_S.sum())) - 1e-9 * float(size_S.sum())
    if len(size_S) <= EXACT_SEEDS:
        count = _count_patterns(size_S, threshold)
        return SignFlip(count / 2 ** len(size_S), exact=True)
    count = _count_random_patterns(size_S, threshold)
    return SignFlip((1 + count) / (1 + DRAWS), exact=False)


def _count_patterns(size_S: Floats, threshold: float) -> int:
    """Count the sign patterns whose sum is at least ``threshold`` from zero.

    The patterns of each half are listed, and their pairs are counted by bisection:
    ``2 * 2**(S / 2)`` sums instead of ``2**S``.
    """
    half = len(size_S) // 2
    first_half = _signed_sums(size_S[:half])
    second_half = np.sort(_signed_sums(size_S[half:]))
    # every pattern counts, and the two counts below would overlap
    if threshold <= 0:
        return len(first_half) * len(second_half)

    # for every sum of the first half, the second halves that lead far enough
    num_above = len(second_half) - np.searchsorted(
        second_half, threshold - first_half, "left"
    )
    num_below = np.searchsorted(second_half, -threshold - first_half, "right")
    return int(num_above.sum() + num_below.sum())


def _count_random_patterns(size_S: Floats, threshold: float) -> int:
    """Draw sign patterns; count those whose sum is at least ``threshold`` from zero."""
    generator = np.random.default_rng(0)
    count = 0
    for start in range(0, DRAWS, DRAWS_AT_ONCE):
        # R sign patterns at once
        num_patterns = min(DRAWS_AT_ONCE, DRAWS - start)
        bit_RS = generator.integers(0, 2, (num_patterns, len(size_S)), dtype=np.int8)
        sign_RS = bit_RS * 2 - 1
        count += int(np.sum(np.abs(sign_RS @ size_S) >= threshold))
    return count


def _signed_sums(size_S: Floats) -> Floats:
    """The sums of these sizes under all patterns of signs, (2**S,)."""
    sums = np.zeros(1)
    for size in size_S:
        sums = np.concatenate([sums - size, sums + size])
    return sums


def sign_flip_of_rows(difference_N: NDArray[Any]) -> float:
    """The p of a sign-flip test over rows, for fixed seeds.

    If no mechanism is better, the difference of a row, summed over the seeds, could as
    well have the other sign. If groups are the unit, this holds for the sum of a group.

    Args:
        difference_N: sums over the seeds, of each row or group; whole numbers if every
            test is right or wrong.

    Returns:
        An exact p if the differences are whole numbers. Of other numbers, and of very
        large ones, p is that of ``sign_flip``. It is 1 if no row differs, and 0 (no
        test is needed) if 100 rows or more differ.
    """
    nonzero_N = difference_N[difference_N != 0]
    if len(nonzero_N) >= FEW_DIFFERENT_ROWS:
        return 0.0
    if not len(nonzero_N):
        return 1.0
    is_whole = np.issubdtype(nonzero_N.dtype, np.integer)
    sum_of_sizes = np.abs(nonzero_N).sum()
    if not is_whole or sum_of_sizes > MOST_SUMS:
        return sign_flip(nonzero_N.astype(np.float64)).p

    # the distribution of the sum under random signs, row after row; sum 0 in the middle
    probability = np.ones(1)
    for size in np.abs(nonzero_N).tolist():
        half = probability / 2
        probability = np.zeros(len(half) + 2 * size)
        probability[: len(half)] += half  # the sum minus the size
        probability[-len(half) :] += half  # the sum plus the size
    sums = np.arange(len(probability)) - len(probability) // 2
    is_as_far = np.abs(sums) >= abs(nonzero_N.sum())
    return float(probability[is_as_far].sum())


def holm(p_M: Floats) -> Floats:
    """Holm's adjusted p-values of M tests, in the given order.

    The k-th smallest p-value is multiplied by ``M - k + 1``. No adjusted p-value is
    below that of a smaller p, or above 1.

    Raises:
        ValueError: a value that is no probability.

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
    """The comparison over seeds alone, for fixed test rows."""

    std: float | None  # standard deviation of the seeds' differences
    interval: tuple[float, float] | None  # 95% t interval
    sign_flip: SignFlip | None  # None for fewer than 6 seeds
    p_equivalent: float | None  # of two one-sided paired t tests against the margin
    detectable: float | None
    """Smallest true difference that so many seeds detect with a power of 80%."""
    verdict: Verdict


def compare_on_these_rows(
    difference_S: NDArray[np.float64],
    margin: float,
    *,
    largest_difference: float = 1.0,
    larger_is_better: bool = True,
) -> OnTheseRows:
    """Test the differences of S seeds against zero and against the margin.

    Args:
        difference_S: score of the mechanism minus that of the baseline, by seed.
        margin: largest difference that does not matter.
        largest_difference: largest possible difference of two scores, such as 1 of
            accuracies.
        larger_is_better: False for losses.
    """
    num_seeds = len(difference_S)
    mean = float(difference_S.mean())
    improvement = mean if larger_is_better else -mean
    sign_flip_test = None
    p = None
    if num_seeds >= LEAST_SEEDS:
        sign_flip_test = sign_flip(difference_S)
        p = sign_flip_test.p
    p_equivalent = _p_equivalent(difference_S, mean, margin)

    # None if only an impossible difference would be detected
    detectable = minimum_detectable_difference(difference_S, alpha=ALPHA)
    if detectable is not None and detectable > largest_difference:
        detectable = None
    return OnTheseRows(
        std=standard_deviation(difference_S),
        interval=within(
            t_interval(difference_S), -largest_difference, largest_difference
        ),
        sign_flip=sign_flip_test,
        p_equivalent=p_equivalent,
        detectable=detectable,
        verdict=verdict_of(num_seeds, improvement, p, p_equivalent),
    )


def _p_equivalent(difference_S: Floats, mean: float, margin: float) -> float | None:
    """Larger p of two one-sided paired t tests; None for fewer than two seeds."""
    sd = standard_deviation(difference_S)
    if sd is None:
        return None
    num_seeds = len(difference_S)
    std_error = sd / num_seeds**0.5
    distance_to_margin = margin - abs(mean)
    # equal differences of all seeds: p is 0 for a mean within the margin, else 1
    if not std_error:
        return float(distance_to_margin <= 0)
    return float(stdtr(num_seeds - 1, -distance_to_margin / std_error))


def verdict_of(
    num_seeds: int, improvement: float, p: float | None, p_equivalent: float | None
) -> Verdict:
    """The verdict on a mean difference.

    Args:
        num_seeds: with fewer than ``LEAST_SEEDS`` the verdict is undecided.
        improvement: the mean difference; above 0 the mechanism is better.
        p: of the test of a difference; None: not tested.
        p_equivalent: of the test of equivalence; None: not tested.
    """
    if num_seeds < LEAST_SEEDS:
        return "undecided"
    if p is not None and p < ALPHA:
        return "better" if improvement > 0 else "worse"
    if p_equivalent is not None and p_equivalent < ALPHA:
        return "equivalent"
    return "undecided"


@dataclass(frozen=True, slots=True)
class CorrectedT:
    """A mean difference over splits. Fractions, not percent."""

    splits: int
    difference: float
    interval: tuple[float, float]  # 95%
    p: float

    def to_dict(self) -> dict[str, object]:
        return {
            "splits": self.splits,
            "difference": self.difference,
            "ci95": list(self.interval),
            "p": self.p,
        }


def corrected_resampled_t(
    difference_J: NDArray[np.float64], test_per_train: float, *, most: float = 1.0
) -> CorrectedT | None:
    """Corrected resampled t test of differences over folds, of one or several repeats.

    Splits share training rows, so their differences vary less than those of disjoint
    training sets. The variance of their mean is ``(1 / J + test / train)`` times the
    variance of a difference, not ``1 / J`` times. None for fewer than two splits.

    Args:
        difference_J: difference of every split.
        test_per_train: test rows of a split per training row: ``1 / (folds - 1)``.
        most: largest possible difference; of two accuracies 1.

    Raises:
        ValueError: NaN or infinity.

    Source: Nadeau and Bengio 2003, "Inference for the generalization error"; for
        repeated cross-validation: Bouckaert and Frank 2004.
    """
    splits = len(require_finite(difference_J))
    if splits < 2:
        return None
    mean = float(difference_J.mean())
    variance = (1 / splits + test_per_train) * np.var(difference_J, ddof=1)
    std_error = float(np.sqrt(variance))
    # equal differences of all splits: p is 1 for a difference of 0, else 0
    if std_error < 1e-15:
        p = float(mean == 0)
    else:
        p = 2 * float(stdtr(splits - 1, -abs(mean) / std_error))
    half_width = float(stdtrit(splits - 1, 0.975)) * std_error
    interval = within((mean - half_width, mean + half_width), -most, most)
    assert interval is not None
    return CorrectedT(splits, mean, interval, p)
