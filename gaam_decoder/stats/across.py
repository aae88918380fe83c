"""One answer from many data sets: the mean difference of two mechanisms over them.

Every data set gives a difference with its standard error. The data sets are a sample of
those of their kind: a random-effects model says how the true differences of data sets
vary, and what their mean is.

K data sets.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri, stdtr, stdtrit

from gaam_decoder.stats.claims import MARGIN, Claim
from gaam_decoder.stats.limits import ALPHA
from gaam_decoder.stats.paired import NO_CLAIM, Verdict, holm, sign_flip

Floats = NDArray[np.float64]
LEAST_SETS = 5
"""With fewer data sets there is no verdict: the variance between them is a guess."""
UPPER_QUARTILE = 0.75
"""Level of the limit of the variance between data sets that predicts another one."""
SMALLEST_VARIANCE = 1e-10
"""Smaller variances count as this one, so that weights stay finite.

It is a standard error of a thousandth of a point.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetDifference:
    """A mechanism minus a baseline on one data set. Fractions, not percent."""

    name: str
    difference: float
    variance: float
    """Of the difference, over seeds and test rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Across:
    """The difference of a mechanism and a baseline over K data sets."""

    sets: tuple[SetDifference, ...]
    left_out: tuple[str, ...]  # data sets without a standard error
    margin: float
    difference: float  # mean over data sets of the kind
    std_error: float | None  # None for fewer than two data sets
    between: float
    """Standard deviation of the true differences of data sets."""
    interval: tuple[float, float] | None  # 95%, of the mean
    prediction: tuple[float, float] | None
    """95% interval of the true difference on another data set of the kind."""
    p: float | None
    p_equivalent: float | None  # larger of two one-sided p-values against the margin
    p_of_these_sets: float | None
    """Exact signed-rank test of these data sets alone."""
    p_holm: float | None = None
    p_equivalent_holm: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Better or worse if p is below 0.05, else equivalent if its p is.

        The corrected p-values count, if there are any. No claim below five data sets.
        """
        if self.p is None or self.p_equivalent is None or len(self.sets) < LEAST_SETS:
            return NO_CLAIM
        p = self.p if self.p_holm is None else self.p_holm
        p_equivalent = self.p_equivalent
        if self.p_equivalent_holm is not None:
            p_equivalent = self.p_equivalent_holm
        if p < ALPHA:
            return "better" if self.difference > 0 else "worse"
        return "equivalent" if p_equivalent < ALPHA else "undecided"


def difference_of_claim(name: str, claim: Claim) -> SetDifference | None:
    """The difference of a claim with its variance; None if the claim has no test.

    A difference of losses changes its sign: above 0 the mechanism is better.
    """
    if claim.limits is None:
        return None
    sign = 1 if claim.larger_is_better else -1
    variance = claim.limits.effects.variance + claim.limits.unseen
    return SetDifference(
        name=name, difference=sign * claim.difference, variance=variance
    )


def of_one_set(name: str, differences: Sequence[SetDifference]) -> SetDifference:
    """One difference of a data set from those of several encoders.

    The encoders read the same test rows, so that their differences err together. The
    standard error of the mean is at most the mean of the standard errors, which it is
    if they err alike: that counts.
    """
    std_errors = [math.sqrt(entry.variance) for entry in differences]
    return SetDifference(
        name=name,
        difference=float(np.mean([entry.difference for entry in differences])),
        variance=float(np.mean(std_errors)) ** 2,
    )


def across(
    claims: Mapping[str, Claim] | Mapping[str, Sequence[Claim]],
    *,
    margin: float = MARGIN,
) -> Across:
    """The mean difference over data sets, with its interval and verdict.

    A random-effects model. The variance between data sets is that of Paule and Mandel;
    the weights count it as at least the mean variance within data sets. The interval of
    the mean is that of Hartung and Knapp, with K - 1 degrees of freedom; it is never
    narrower than the errors within data sets alone make it. Two one-sided tests with
    the same standard error test equivalence. The interval of another data set uses the
    upper quartile of the variance between data sets, which few data sets know badly.
    In simulated experiments (``bench_error_rates --of many``) the mean is in its
    interval in 94 to 99 of 100 cases, another data set in 92 to 98.

    The data set is the unit. Where a data set was read by several encoders, their
    differences are averaged first (``of_one_set``): they have test rows in common, and
    twice as many encoders are not twice as many data sets.

    Args:
        claims: data set -> the claim of the two mechanisms, or those of its encoders.
        margin: largest difference that does not matter, a fraction.

    Returns:
        Data sets without a test (one seed, too few groups) are left out by name.

    Raises:
        ValueError: no data set with a test, or a margin that is not above 0.

    Source: Paule and Mandel 1982, "Consensus values and weighting factors"; Hartung and
        Knapp 2001, "A refined method for the meta-analysis of controlled clinical
        trials"; the interval of another data set: Higgins, Thompson and Spiegelhalter
        2009, "A re-evaluation of random-effects meta-analysis"; equivalence: Schuirmann
        1987.
    """
    sets: list[SetDifference] = []
    left_out: list[str] = []
    for name, set_claims in claims.items():
        of_set = [set_claims] if isinstance(set_claims, Claim) else list(set_claims)
        tested = [difference_of_claim(name, claim) for claim in of_set]
        differences = [entry for entry in tested if entry is not None]
        if not differences or len(differences) < len(tested):
            left_out.append(name)
            continue
        sets.append(of_one_set(name, differences))
    return combine(sets, margin=margin, left_out=left_out)


def combine(
    sets: Sequence[SetDifference],
    *,
    margin: float = MARGIN,
    left_out: Sequence[str] = (),
) -> Across:
    """The answer of ``across`` from differences and their variances."""
    if not margin > 0:
        raise ValueError("a margin is above 0")
    difference_K, variance_K = _differences_and_variances(sets)
    between = between_variance(difference_K, variance_K)

    # The estimate may be 0 by chance. A few data sets with small standard errors would
    # then outweigh all others, although they may well be unlike them.
    weight_K = 1 / (variance_K + max(between, float(variance_K.mean())))
    mean = float(weight_K @ difference_K / weight_K.sum())
    result = Across(
        sets=tuple(sets),
        left_out=tuple(left_out),
        margin=margin,
        difference=mean,
        std_error=None,
        between=math.sqrt(between),
        interval=None,
        prediction=None,
        p=None,
        p_equivalent=None,
        p_of_these_sets=_signed_rank(difference_K),
    )
    if len(sets) < 2:
        return result
    return _with_intervals(result, difference_K, variance_K, weight_K)


def _differences_and_variances(sets: Sequence[SetDifference]) -> tuple[Floats, Floats]:
    """Difference and variance of every data set, each (K,).

    Raises:
        ValueError: no data set, or a number that is not finite.
    """
    if not sets:
        raise ValueError("no data set has a difference with a standard error")
    difference_K = np.array([entry.difference for entry in sets], dtype=np.float64)
    variance_K = np.array([entry.variance for entry in sets], dtype=np.float64)
    if not (np.isfinite(difference_K).all() and np.isfinite(variance_K).all()):
        raise ValueError("differences and variances are finite")
    return difference_K, np.maximum(variance_K, SMALLEST_VARIANCE)


def _with_intervals(
    result: Across, difference_K: Floats, variance_K: Floats, weight_K: Floats
) -> Across:
    """Add standard error, intervals and tests to the mean of two or more data sets."""
    mean = result.difference
    margin = result.margin

    # Hartung and Knapp's standard error follows from the weighted residuals
    freedom = len(difference_K) - 1
    quantile = float(stdtrit(freedom, 1 - ALPHA / 2))
    spread = float(weight_K @ (difference_K - mean) ** 2) / freedom
    half = quantile * math.sqrt(spread / weight_K.sum())

    # data sets that agree by chance do not make it narrower than their own errors do
    own_std_error = math.sqrt(float(weight_K**2 @ variance_K)) / float(weight_K.sum())
    half = max(half, float(ndtri(1 - ALPHA / 2)) * own_std_error)
    std_error = half / quantile

    upper = between_variance(difference_K, variance_K, quantile=UPPER_QUARTILE)
    predicted_half = quantile * math.sqrt(upper + std_error**2)
    return replace(
        result,
        std_error=std_error,
        interval=(mean - half, mean + half),
        prediction=(mean - predicted_half, mean + predicted_half),
        p=2 * float(stdtr(freedom, -abs(mean) / std_error)),
        p_equivalent=float(stdtr(freedom, -(margin - abs(mean)) / std_error)),
    )


def between_variance(
    difference_K: Floats, variance_K: Floats, *, quantile: float | None = None
) -> float:
    """Variance of the true differences of data sets, by Paule and Mandel.

    With it the weighted squared residuals add up to K - 1, as they do on average; 0 if
    they are smaller without it.

    Args:
        difference_K: difference of every data set.
        variance_K: sampling variance of each, above 0.
        quantile: give the confidence limit of this level instead, from the chi-squared
            distribution of the residuals.

    Source: of the limit, Viechtbauer 2007, "Confidence intervals for the amount of
        heterogeneity in meta-analysis" (the Q-profile).
    """
    freedom = len(difference_K) - 1
    if freedom < 1:
        return 0.0
    target: float = freedom
    if quantile is not None:
        target = float(chdtri(freedom, quantile))

    def excess(between: float) -> float:
        """By how much the weighted squared residuals are above the target."""
        weight_K = 1 / (variance_K + between)
        mean = weight_K @ difference_K / weight_K.sum()
        return float(weight_K @ (difference_K - mean) ** 2) - target

    if excess(0.0) <= 0:
        return 0.0
    # Every report would wait for this import, and few ask for many data sets.
    from scipy.optimize import brentq

    upper = float(np.ptp(difference_K)) ** 2
    while excess(upper) > 0:
        upper *= 2
    return float(brentq(excess, 0.0, upper, xtol=1e-16))


def _signed_rank(difference_K: Floats) -> float | None:
    """Exact two-sided p of the signed-rank test, ties and zeros included.

    None if no data set differs.

    Source: Wilcoxon 1945; zeros are left out.
    """
    nonzero_K = difference_K[difference_K != 0]
    if not len(nonzero_K):
        return None
    rank_K = mid_ranks(np.abs(nonzero_K))
    return sign_flip(np.sign(nonzero_K) * rank_K).p


def mid_ranks(value_N: Floats) -> Floats:
    """Rank of every value, (N,), the smallest is 1; equal values share their mean."""
    below_N = (value_N[None] < value_N[:, None]).sum(1)
    equal_N = (value_N[None] == value_N[:, None]).sum(1)
    rank_N: Floats = below_N + (equal_N + 1) / 2
    return rank_N


def across_corrected(answers: Sequence[Across], untested: int = 0) -> list[Across]:
    """Correct the answers of several mechanisms for one another, by Holm.

    Tests of a difference are one family, tests of equivalence another. Answers without
    a test come back unchanged.

    Args:
        answers: one for each mechanism.
        untested: mechanisms that count as if they had shown nothing, such as those that
            a person left out.
    """
    tested = [entry for entry in answers if entry.verdict != NO_CLAIM]
    nothing_shown = [1.0] * untested
    p_M = np.array([entry.p for entry in tested] + nothing_shown, np.float64)
    p_equivalent_M = np.array(
        [entry.p_equivalent for entry in tested] + nothing_shown, np.float64
    )
    corrected = [
        replace(entry, p_holm=float(p), p_equivalent_holm=float(p_equivalent))
        for entry, p, p_equivalent in zip(
            tested, holm(p_M), holm(p_equivalent_M), strict=False
        )
    ]
    remaining = iter(corrected)
    return [
        entry if entry.verdict == NO_CLAIM else next(remaining) for entry in answers
    ]
