"""The verdict on two mechanisms by any score, and the interval of a score.

S seeds of both mechanisms, N test rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.claims import Claim, claim, too_few
from gaam_decoder.stats.crossed import Crossed, crossed, two_level_interval
from gaam_decoder.stats.groups import RowGroups
from gaam_decoder.stats.limits import ALPHA, MeanLimits
from gaam_decoder.stats.paired import NO_CLAIM, on_these_rows
from gaam_decoder.stats.scores.base import Score, SeedScore

Floats = NDArray[np.float64]
UNSEEN_FACTOR = 3.33
"""Factor of the variance of unseen rows. With it, the one-sided 95% limit of an event
without cases in N rows is ``3 / N``, as the rule of three has it: 3.33 is the square of
``-ln 0.05 = 3.00`` over the square of 1.645, the normal quantile."""
SKEWED = 25
"""Rows per squared skewness; with fewer, the limits of a mean hold less often than
their level. Source: Cochran 1977, "Sampling techniques", section 2.15."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The score of every seed of a mechanism, (S,), and of every row, (S, N)."""

    values: Floats
    by_row: NDArray[np.bool_] | Floats | None
    """The mean over the rows is the value; None if the score is no mean of rows."""
    unseen_variance: float = 0.0
    """That of ``SeedScore``, from rare rows that the sample may lack; the largest of
    the seeds."""
    no_claim_reason: str = ""  # why the score allows no claim; empty: it does
    tuning_variance: float = 0.0
    """Variance from tuning on validation rows, see ``simulate_choices``."""
    train_rows: float = math.inf  # number of training rows, see ``claim``
    groups: RowGroups | None = None  # None: every row is a unit

    @classmethod
    def from_seeds(
        cls,
        seed_scores: list[SeedScore],
        by_row_SN: Any,
        no_claim_reason: str = "",
        groups: RowGroups | None = None,
    ) -> Scored:
        """Join the scores of all seeds.

        Args:
            seed_scores: one for each seed.
            by_row_SN: ``SeedScore.by_row`` of all seeds; None if any seed has none.
            no_claim_reason: why the score allows no claim; empty: it does.
            groups: rows that belong together; None: every row is a unit.
        """
        return cls(
            values=np.array([score.value for score in seed_scores]),
            by_row=by_row_SN,
            unseen_variance=max(
                (score.unseen_variance for score in seed_scores), default=0.0
            ),
            no_claim_reason=no_claim_reason,
            groups=groups,
        )

    def subset_of_seeds(self, positions: list[int]) -> Scored:
        """The same scores of some seeds, given by their positions in the arrays."""
        by_row = None if self.by_row is None else self.by_row[positions]
        return replace(self, values=self.values[positions], by_row=by_row)


def claim_by_score(
    score: Score, mechanism: Scored, baseline: Scored, *, margin: float
) -> Claim:
    """Compare a mechanism with a baseline by a score, over S seeds and N test rows.

    A score of right and wrong rows (accuracy, top-5) is compared by ``claim``. Any
    other score has the same analysis of crossed seeds and rows, applied to the
    contribution of every row. Its t tests use the variance of ``crossed``, and that of
    one more row of every kind, for the test rows may lack rare ones. There is no claim
    if the score allows none, or if the contributions are so skewed that their mean is
    not yet normal.

    Args:
        score: compares the two.
        mechanism: scores of the mechanism.
        baseline: scores of the baseline, under the same seeds on the same rows.
        margin: largest difference that does not matter, in the unit of the score (a
            fraction, if the score is shown in percent).

    Raises:
        ValueError: a margin that is not above 0, NaN or infinity, or other seeds or
            rows.

    Source: see ``crossed``; scores that are no means of rows: Efron 1982, "The
        jackknife, the bootstrap and other resampling plans", chapter 6 (infinitesimal
        jackknife);
        equivalence: Schuirmann 1987.
    """
    if not 0 < margin < score.largest_difference:
        raise ValueError(
            "a margin is above 0 and below the largest possible difference"
        )
    if mechanism.values.shape != baseline.values.shape or not len(mechanism.values):
        raise ValueError("values of the same seeds, one at least")

    no_claim_reason = (
        mechanism.no_claim_reason
        or baseline.no_claim_reason
        or too_few(mechanism.groups)
    )
    untested = _untested_claim(score, mechanism, baseline, margin, no_claim_reason)
    by_row_SN = mechanism.by_row
    baseline_SN = baseline.by_row
    if by_row_SN is None or baseline_SN is None or no_claim_reason:
        return untested
    tuning_variance = mechanism.tuning_variance + baseline.tuning_variance
    train_rows = min(mechanism.train_rows, baseline.train_rows)
    if score.is_share_of_hits:
        return claim(
            by_row_SN,
            baseline_SN,
            margin=margin,
            tuning_variance=tuning_variance,
            train_rows=train_rows,
            groups=mechanism.groups,
        )
    # an analysis of variance needs two seeds and two rows
    if min(by_row_SN.shape) < 2:
        return untested

    # a single row may outweigh all others in a score without bound
    difference_SN = by_row_SN.astype(np.float64) - baseline_SN.astype(np.float64)
    effects = crossed(difference_SN, mechanism.groups)
    if math.isinf(score.largest_difference) and _is_too_skewed(difference_SN.mean(0)):
        num_rows = difference_SN.shape[1]
        skewed = f"the contributions of {num_rows:,} rows are too skewed"
        return replace(untested, no_claim_reason=skewed)
    limits = MeanLimits(
        effects=effects._replace(
            train_rows=train_rows, tuning_variance=tuning_variance
        ),
        unseen_variance=UNSEEN_FACTOR
        * max(mechanism.unseen_variance, baseline.unseen_variance),
        highest=score.largest_difference,
    )
    return _tested_claim(untested, limits)


def _tested_claim(untested: Claim, limits: MeanLimits) -> Claim:
    """A claim with the interval and the p-values of its limits."""
    return replace(
        untested,
        interval=limits.interval(),
        p=limits.p,
        p_equivalent=limits.p_equivalent(untested.margin),
        limits=limits,
    )


def _untested_claim(
    score: Score,
    mechanism: Scored,
    baseline: Scored,
    margin: float,
    no_claim_reason: str,
) -> Claim:
    """The difference of two scores over seeds alone, without a test over rows.

    ``no_claim_reason`` is that of the claim; empty if a test is still to be added.
    """
    difference_S = mechanism.values - baseline.values
    over_seeds = on_these_rows(
        difference_S,
        margin,
        most=score.largest_difference,
        larger_is_better=score.larger_is_better,
    )
    if score.no_claim_reason:
        over_seeds = replace(over_seeds, verdict=NO_CLAIM)
    return Claim(
        num_seeds=len(difference_S),
        num_rows=0 if mechanism.by_row is None else mechanism.by_row.shape[1],
        num_groups=None if mechanism.groups is None else len(mechanism.groups),
        margin=margin,
        difference=float(difference_S.mean()),
        larger_is_better=score.larger_is_better,
        on_these_rows=over_seeds,
        interval=None,
        p=None,
        p_equivalent=None,
        no_claim_reason=no_claim_reason,
    )


def interval_by_score(
    score: Score, scored: Scored, *, without_seeds: bool = False
) -> tuple[float, float] | None:
    """95% interval of a score over seeds and test rows.

    Args:
        score: of the values.
        scored: scores of a mechanism or decoder.
        without_seeds: for a decoder without a seed: only the rows vary.

    Returns:
        None if ``claim_by_score`` has no interval for such scores.
    """
    by_row_SN = scored.by_row
    groups = scored.groups
    if by_row_SN is None or scored.no_claim_reason:
        return None
    if score.is_share_of_hits:
        return two_level_interval(by_row_SN, without_seeds=without_seeds, groups=groups)
    num_seeds, num_rows = by_row_SN.shape
    num_units = num_rows if groups is None else len(groups)
    fewest_seeds = 1 if without_seeds else 2
    if num_units < 2 or num_seeds < fewest_seeds:
        return None
    if math.isinf(score.largest_difference) and _is_too_skewed(by_row_SN.mean(0)):
        return None

    effects = crossed(by_row_SN, groups)
    half_width = effects.distance(ALPHA / 2, UNSEEN_FACTOR * scored.unseen_variance)
    half_width *= _widening(by_row_SN, effects, groups)
    low = max(score.lowest, effects.mean - half_width)
    high = min(score.highest, effects.mean + half_width)
    return low, high


def _widening(
    by_row_SN: NDArray[Any], effects: Crossed, groups: RowGroups | None
) -> float:
    """Factor by which an interval is widened beyond its variance; at least 1.

    The variance is never below that of the rows of one seed: few seeds may by chance
    agree too well. The interval of an accuracy has the same lower bound.
    """
    variance_of_one_seed = float(by_row_SN.var(axis=1).mean()) / by_row_SN.shape[1]
    if groups is not None:
        variance_S = np.sum(groups.excess(by_row_SN) ** 2, axis=1)
        variance_of_one_seed = max(variance_of_one_seed, float(variance_S.mean()))
    if 0 < effects.variance < variance_of_one_seed:
        return float((variance_of_one_seed / effects.variance) ** 0.5)
    return 1.0


def _is_too_skewed(value_N: Floats) -> bool:
    """Whether the values are too few, given their skewness, for a normal mean.

    Their mean is nearly normal from ``SKEWED`` values per squared skewness on.
    """
    from_mean_N = value_N - value_N.mean()
    variance = float(np.mean(from_mean_N**2))
    if variance < 1e-300:
        return False
    skewness = float(np.mean((from_mean_N / variance**0.5) ** 3))
    return len(value_N) < SKEWED * skewness**2
