"""One answer from many data sets: the mean difference of two mechanisms over them.

Every data set gives a difference with its standard error. The data sets are a sample of
those of their kind: a random-effects model says how the true differences of data sets
vary, and what their mean is.

K data sets.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtr, ndtri, stdtr, stdtrit

from gaam_decoder.stats.claims import MARGIN, Claim
from gaam_decoder.stats.mean_test import ALPHA
from gaam_decoder.stats.paired import (
    LEAST_SEEDS,
    NO_CLAIM,
    Verdict,
    holm,
    sign_flip,
)

Floats = NDArray[np.float64]
LEAST_SETS = 5
"""With fewer data sets there is no verdict: the variance between them is a guess."""
ROUNDING = 1e-7
"""Relative difference that rounding explains.

Recorded values have nine digits, and means of encoders may cancel two of them."""
FEW_SEEDS = f"fewer than {LEAST_SEEDS} seeds"
"""Why a difference over so few seeds does not count: its variance is a guess."""
UPPER_QUARTILE = 0.75
"""Level of the upper limit of the variance between data sets that predicts another."""
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
    """Of the difference, over seeds, test rows and tuning."""
    shared_variance: float | None = None
    """The part of it that all encoders of the data set share, since it comes from the
    rows; None if that is not known, so that all of it may be shared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Across:
    """The difference of a mechanism and a baseline over K data sets."""

    sets: tuple[SetDifference, ...]
    margin: float
    difference: float  # mean over data sets of the kind
    std_error: float | None
    """Half the width of ``interval`` over the quantile of t; None for fewer than two
    data sets."""
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
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Data sets that do not count -> the reason."""

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


def why_left_out(claim: Claim) -> str:
    """Why a claim counts in no mean over data sets; empty if it counts.

    The variance of its difference has to be known. From fewer than six seeds it is a
    guess: such a data set might get most of the weight by chance.
    """
    if claim.num_seeds < LEAST_SEEDS:
        return FEW_SEEDS
    if claim.no_claim_reason:
        return claim.no_claim_reason
    return "no standard error" if claim.test_over_rows is None else ""


def difference_of_claim(name: str, claim: Claim) -> SetDifference | None:
    """The difference of a claim with its variance; None if the claim has no test.

    A difference of losses changes its sign: above 0 the mechanism is better. Whether
    the difference counts over data sets is what ``why_left_out`` says.
    """
    if claim.test_over_rows is None:
        return None
    sign = 1 if claim.larger_is_better else -1
    variance = claim.test_over_rows.variance_over_sets(claim.margin)
    anova = claim.test_over_rows.anova
    own_variance = anova.variance_from_seeds + anova.tuning_variance
    return SetDifference(
        name=name,
        difference=sign * claim.difference,
        variance=variance,
        shared_variance=max(0.0, variance - own_variance),
    )


def average_over_encoders(
    name: str, differences: Sequence[SetDifference]
) -> SetDifference:
    """The difference of a data set: the mean of its differences with several encoders.

    The encoders read the same rows, and may all err with them in the same way: of this
    part of the variance, the mean of E encoders keeps the square of the mean standard
    error. The rest comes from seeds and tuning, which are of each encoder alone: of
    these variances, the mean of E encoders keeps the sum divided by E^2.

    Args:
        name: of the data set.
        differences: on this data set, one for each of E encoders.
    """
    shared_std_errors = []
    own_variances = []
    for entry in differences:
        shared = entry.variance
        if entry.shared_variance is not None:
            shared = entry.shared_variance
        shared_std_errors.append(math.sqrt(shared))
        own_variances.append(entry.variance - shared)
    shared_variance = float(np.mean(shared_std_errors)) ** 2
    own_variance = math.fsum(own_variances) / len(own_variances) ** 2
    return SetDifference(
        name=name,
        difference=float(np.mean([entry.difference for entry in differences])),
        variance=shared_variance + own_variance,
        shared_variance=shared_variance,
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
    narrower than the errors within data sets alone make it. A p-value is the level at
    which this interval ends at 0; for equivalence, at the margin (two one-sided tests).
    The interval of another data set uses the upper limit of a one-sided 75% interval of
    the variance between data sets, because few data sets know that variance badly.
    In simulated experiments (``bench_error_rates --of many``) the mean is in its
    interval in 93 to 98 of 100 cases, another data set in 95 to 99.

    The data set is the unit. Where a data set was read by several encoders, their
    differences are averaged first (``average_over_encoders``): they have test rows in
    common, and twice as many encoders are not twice as many data sets.

    Args:
        claims: data set -> the claim of the two mechanisms, or those of its encoders.
        margin: largest difference that does not matter, a fraction.

    Returns:
        The mean difference, with the names of the data sets that do not count: those
        with a claim over fewer than six seeds, or without a test (too few groups).

    Raises:
        ValueError: no data set counts, or a margin that is not above 0.

    Source: Paule and Mandel 1982, "Consensus values and weighting factors"; Hartung and
        Knapp 2001, "A refined method for the meta-analysis of controlled clinical
        trials"; the interval of another data set: Higgins, Thompson and Spiegelhalter
        2009, "A re-evaluation of random-effects meta-analysis"; equivalence: Schuirmann
        1987.
    """
    sets: list[SetDifference] = []
    left_out: dict[str, str] = {}
    for name, claim_or_claims in claims.items():
        if isinstance(claim_or_claims, Claim):
            claims_of_encoders = [claim_or_claims]
        else:
            claims_of_encoders = list(claim_or_claims)
        tested = [difference_of_claim(name, claim) for claim in claims_of_encoders]
        differences = [difference for difference in tested if difference is not None]
        reason = _why_set_left_out(claims_of_encoders)
        if reason:
            left_out[name] = reason
        else:
            sets.append(average_over_encoders(name, differences))
    return combine_sets(sets, margin=margin, left_out=left_out)


def _why_set_left_out(claims: Sequence[Claim]) -> str:
    """Why a data set does not count: any claim of its encoders does not, or none is."""
    if not claims:
        return "no claim"
    reasons = [why_left_out(claim) for claim in claims]
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def combine_sets(
    sets: Sequence[SetDifference],
    *,
    margin: float = MARGIN,
    left_out: Mapping[str, str] | None = None,
    largest_difference: float = math.inf,
) -> Across:
    """The mean difference over data sets, as ``across`` describes it.

    Args:
        sets: the difference of every data set and its variance.
        margin: largest difference that does not matter, a fraction.
        left_out: further data sets -> why they do not count; for the result alone.
        largest_difference: that is possible, such as 1 of accuracies; intervals end
            there.

    Raises:
        ValueError: no data set, or a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError("a margin is above 0")
    left_out = left_out or {}
    if not sets:
        reasons = "; ".join(dict.fromkeys(left_out.values())) or "there is none"
        raise ValueError(f"no data set counts: {reasons}")
    difference_K, variance_K = _differences_and_variances(sets)
    between = between_variance(difference_K, variance_K)

    # The variance between data sets may be estimated as 0 by chance. A few data sets
    # with small standard errors would then outweigh all others: it counts as at least
    # the mean variance within data sets.
    weight_K = 1 / (variance_K + max(between, float(variance_K.mean())))
    mean = float(weight_K @ difference_K / weight_K.sum())
    result = Across(
        sets=tuple(sets),
        margin=margin,
        difference=mean,
        std_error=None,
        between=math.sqrt(between),
        interval=None,
        prediction=None,
        p=None,
        p_equivalent=None,
        p_of_these_sets=_signed_rank(difference_K),
        left_out=dict(left_out),
    )
    if len(sets) < 2:
        return result
    return _with_intervals(
        result, difference_K, variance_K, weight_K, largest_difference
    )


def _differences_and_variances(sets: Sequence[SetDifference]) -> tuple[Floats, Floats]:
    """Difference and variance of every data set, each (K,); variances are above 0.

    Raises:
        ValueError: a number that is not finite.
    """
    difference_K = np.array([entry.difference for entry in sets], dtype=np.float64)
    variance_K = np.array([entry.variance for entry in sets], dtype=np.float64)
    if not (np.isfinite(difference_K).all() and np.isfinite(variance_K).all()):
        raise ValueError("differences and variances are finite")
    return difference_K, np.maximum(variance_K, SMALLEST_VARIANCE)


def _with_intervals(
    result: Across,
    difference_K: Floats,
    variance_K: Floats,
    weight_K: Floats,
    largest_difference: float,
) -> Across:
    """Add standard error, intervals and tests to the mean of two or more data sets."""
    mean = result.difference
    degrees_of_freedom = len(difference_K) - 1
    t_quantile = float(stdtrit(degrees_of_freedom, 1 - ALPHA / 2))

    # The residuals may be small by chance. The errors within data sets alone give an
    # interval, too: the wider of the two counts.
    residual_std_error = _residual_std_error(difference_K - mean, weight_K)
    within_std_error = _within_std_error(variance_K, weight_K)
    normal_quantile = float(ndtri(1 - ALPHA / 2))
    half_width = max(
        t_quantile * residual_std_error, normal_quantile * within_std_error
    )
    std_error = half_width / t_quantile

    def one_sided_p(distance: float) -> float:
        """The larger p of a normal and a t test that the mean is so far from a value.

        Each belongs to one of the two half widths above.
        """
        p_of_normal = float(ndtr(-distance / within_std_error))
        # equal differences have no residuals
        if residual_std_error == 0:
            return p_of_normal
        t_value = -distance / residual_std_error
        return max(p_of_normal, float(stdtr(degrees_of_freedom, t_value)))

    def interval_around_mean(reach: float) -> tuple[float, float]:
        """The interval from ``mean - reach``, without impossible differences."""
        low = max(mean - reach, -largest_difference)
        high = min(mean + reach, largest_difference)
        return low, high

    # The true difference of another data set varies around the mean. Few data sets may
    # show too little of that variance by chance: an upper limit of it counts.
    between = between_variance(difference_K, variance_K, quantile=UPPER_QUARTILE)
    prediction_half_width = t_quantile * math.sqrt(between + std_error**2)
    return replace(
        result,
        std_error=std_error,
        interval=interval_around_mean(half_width),
        prediction=interval_around_mean(prediction_half_width),
        p=2 * one_sided_p(abs(mean)),
        # the larger of two one-sided p-values is that of the margin next to the mean
        p_equivalent=one_sided_p(result.margin - abs(mean)),
    )


def _residual_std_error(residual_K: Floats, weight_K: Floats) -> float:
    """Hartung and Knapp's standard error of the mean, from the weighted residuals."""
    degrees_of_freedom = len(residual_K) - 1
    residual_square = float(weight_K @ residual_K**2) / degrees_of_freedom
    return math.sqrt(residual_square / weight_K.sum())


def _within_std_error(variance_K: Floats, weight_K: Floats) -> float:
    """The standard error of the mean by the errors within data sets alone."""
    std_error = math.sqrt(float(weight_K**2 @ variance_K))
    return std_error / float(weight_K.sum())


def between_variance(
    difference_K: Floats, variance_K: Floats, *, quantile: float | None = None
) -> float:
    """Variance of the true differences of data sets, by Paule and Mandel.

    The weight of a data set is ``1 / (its variance + the variance between)``. The
    result is the variance with which the weighted squared residuals add up to K - 1,
    which is their expectation. It is 0 if they are smaller than that already at 0.

    Args:
        difference_K: difference of every data set.
        variance_K: sampling variance of each, above 0.
        quantile: give the confidence limit of this level instead, from the chi-squared
            distribution of the residuals.

    Source: of the limit, Viechtbauer 2007, "Confidence intervals for the amount of
        heterogeneity in meta-analysis" (the Q-profile).
    """
    degrees_of_freedom = len(difference_K) - 1
    if degrees_of_freedom < 1:
        return 0.0
    target: float = degrees_of_freedom
    if quantile is not None:
        target = float(chdtri(degrees_of_freedom, quantile))

    def excess(between: float) -> float:
        """Sum of the weighted squared residuals minus the target; it falls."""
        weight_K = 1 / (variance_K + between)
        mean = weight_K @ difference_K / weight_K.sum()
        return float(weight_K @ (difference_K - mean) ** 2) - target

    if excess(0.0) <= 0:
        return 0.0
    # imported late: every report would wait for it, and few ask for many data sets
    from scipy.optimize import brentq

    upper = float(np.ptp(difference_K)) ** 2
    while excess(upper) > 0:
        upper *= 2
    return float(brentq(excess, 0.0, upper, xtol=1e-16))


def _signed_rank(difference_K: Floats) -> float | None:
    """Exact two-sided p of Wilcoxon's signed-rank test, also with ties.

    Differences of 0 are left out. None if no data set differs.

    Source: Wilcoxon 1945.
    """
    largest = np.abs(difference_K).max(initial=0.0)
    # recorded differences have nine digits; of several encoders they are means
    nonzero_K = difference_K[np.abs(difference_K) > ROUNDING * min(1.0, largest)]
    if not len(nonzero_K):
        return None
    rank_K = mid_ranks(np.abs(nonzero_K))
    return sign_flip(np.sign(nonzero_K) * rank_K).p


def mid_ranks(value_N: Floats) -> Floats:
    """Rank of every value, (N,), the smallest is 1; equal values share their mean.

    Values are equal if they differ by rounding alone, as means of the same numbers do.
    """
    excess_NN = value_N[:, None] - value_N[None]
    # a small mean of large differences has the rounding of a usual value
    size_N = np.maximum(np.abs(value_N), np.median(np.abs(value_N)))
    rounding_NN = ROUNDING * np.maximum(size_N[:, None], size_N[None])
    below_N = (excess_NN > rounding_NN).sum(1)
    equal_N = (np.abs(excess_NN) <= rounding_NN).sum(1)
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
    tested = [answer for answer in answers if answer.verdict != NO_CLAIM]
    p_of_untested = [1.0] * untested
    p_M = np.array([answer.p for answer in tested] + p_of_untested, np.float64)
    p_equivalent_M = np.array(
        [answer.p_equivalent for answer in tested] + p_of_untested, np.float64
    )
    # the tested answers come first in both families, and the untested are dropped
    corrected = [
        replace(answer, p_holm=float(p), p_equivalent_holm=float(p_equivalent))
        for answer, p, p_equivalent in zip(
            tested, holm(p_M), holm(p_equivalent_M), strict=False
        )
    ]
    next_corrected = iter(corrected)
    return [
        answer if answer.verdict == NO_CLAIM else next(next_corrected)
        for answer in answers
    ]
