"""The verdict on two mechanisms by any score, and the interval of a score.

S seeds of both mechanisms, N test rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.claims import Claim, claim, reason_of_few_groups
from gaam_decoder.stats.crossed import (
    Crossed,
    crossed,
    two_level_interval,
    with_training_variance,
)
from gaam_decoder.stats.groups import RowGroups
from gaam_decoder.stats.mean_test import ALPHA, MeanTest
from gaam_decoder.stats.paired import NO_CLAIM, compare_on_these_rows
from gaam_decoder.stats.scores.base import Score, SeedScore

Floats = NDArray[np.float64]
UNSEEN_FACTOR = 3.33
"""The variance from unseen rows, divided by the square of ``Scored.unseen_change``.
With it, the one-sided 95% limit of an event without cases in N rows is ``3 / N``, as
the rule of three has it: 3.33 is the square of ``-ln 0.05 = 3.00`` over the square of
1.645, the normal quantile."""
SKEWED = 25
"""Rows per squared skewness; with fewer, the limits of a mean hold less often than
their level. Source: Cochran 1977, "Sampling techniques", section 2.15."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The score of every seed of a mechanism, (S,), and of every row, (S, N)."""

    values: Floats
    by_row: NDArray[np.bool_] | Floats | None
    """The mean over the rows is the value; None if the score is no mean of rows."""
    unseen_change: float = 0.0
    """The largest of ``SeedScore.unseen_change`` of the seeds: for rare rows that the
    test rows may lack."""
    no_claim_reason: str = ""  # why the score allows no claim; empty: it does
    tuning_variance: float = 0.0
    """Variance from tuning on validation rows, see ``simulate_choices``."""
    train_rows: float = math.inf  # number of training rows, see ``claim``
    groups: RowGroups | None = None  # None: every row is a unit

    @classmethod
    def from_seeds(
        cls,
        seed_scores: list[SeedScore],
        by_row_SN: NDArray[Any] | None,
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
        unseen_changes = [score.unseen_change for score in seed_scores]
        return cls(
            values=np.array([score.value for score in seed_scores]),
            by_row=by_row_SN,
            # all seeds lack the same rows: the largest change counts
            unseen_change=max(unseen_changes, default=0.0),
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
    contribution of every row. Its t tests use the variance of ``crossed``, and the
    variance from rare rows that the test rows may lack (``UNSEEN_FACTOR``). There is no
    claim if the score allows none, or if the contributions are so skewed that their
    mean is not yet normal.

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
    _check_comparison(score, mechanism, baseline, margin)
    no_claim_reason = (
        mechanism.no_claim_reason
        or baseline.no_claim_reason
        or reason_of_few_groups(mechanism.groups)
    )
    without_test = _claim_without_test(
        score, mechanism, baseline, margin, no_claim_reason
    )
    by_row_SN = mechanism.by_row
    baseline_SN = baseline.by_row
    if by_row_SN is None or baseline_SN is None or no_claim_reason:
        return without_test
    if score.is_share_of_hits:
        return claim(
            by_row_SN,
            baseline_SN,
            margin=margin,
            tuning_variance=_tuning_variance(mechanism, baseline),
            train_rows=_train_rows(mechanism, baseline),
            groups=mechanism.groups,
        )
    # an analysis of variance needs two seeds and two rows
    if min(by_row_SN.shape) < 2:
        return without_test

    difference_SN = by_row_SN.astype(np.float64) - baseline_SN.astype(np.float64)
    if _is_too_skewed(score, difference_SN):
        num_rows = difference_SN.shape[1]
        skewed = f"the contributions of {num_rows:,} rows are too skewed"
        return replace(without_test, no_claim_reason=skewed)
    test_over_rows = _test_of_contributions(score, difference_SN, mechanism, baseline)
    return without_test.with_test(test_over_rows)


def _check_comparison(
    score: Score, mechanism: Scored, baseline: Scored, margin: float
) -> None:
    """Raise ValueError for an impossible margin, no seed, or other seeds."""
    if not 0 < margin < score.largest_difference:
        raise ValueError(
            "a margin is above 0 and below the largest possible difference"
        )
    if mechanism.values.shape != baseline.values.shape or not len(mechanism.values):
        raise ValueError("values of the same seeds, one at least")


def _test_of_contributions(
    score: Score, difference_SN: Floats, mechanism: Scored, baseline: Scored
) -> MeanTest:
    """The tests of a difference by a score, from which p-values and intervals follow.

    Args:
        score: compares the two.
        difference_SN: contributions of the rows to the score of the mechanism, minus
            those to the score of the baseline.
        mechanism: scores of the mechanism.
        baseline: scores of the baseline.
    """
    anova = crossed(difference_SN, mechanism.groups)
    anova = anova._replace(
        train_rows=_train_rows(mechanism, baseline),
        tuning_variance=_tuning_variance(mechanism, baseline),
    )
    # both lack the same rows: the larger change counts
    unseen_change = max(mechanism.unseen_change, baseline.unseen_change)
    return MeanTest(
        anova=anova,
        variance_from_unseen_rows=_variance_from_unseen_rows(
            unseen_change, mechanism.groups
        ),
        largest_difference=score.largest_difference,
    )


def _variance_from_unseen_rows(unseen_change: float, groups: RowGroups | None) -> float:
    """Variance of a score from rare rows, or groups of them, that the test rows lack.

    Args:
        unseen_change: the largest change of the score by one more row.
        groups: rows that belong together; None: every row is a unit.
    """
    if groups is not None:
        # so many rows of a group count as one independent row
        unseen_change = unseen_change * groups.least_design_effect
    return UNSEEN_FACTOR * unseen_change**2


def _tuning_variance(mechanism: Scored, baseline: Scored) -> float:
    """Variance of the difference from the tuning of both."""
    return mechanism.tuning_variance + baseline.tuning_variance


def _train_rows(mechanism: Scored, baseline: Scored) -> float:
    """Training rows of the two: the fewer, if one has fewer."""
    return min(mechanism.train_rows, baseline.train_rows)


def _claim_without_test(
    score: Score,
    mechanism: Scored,
    baseline: Scored,
    margin: float,
    no_claim_reason: str,
) -> Claim:
    """The difference of two scores with its test over seeds, but no test over rows.

    ``no_claim_reason`` says why there is none; it is empty if the caller adds one.
    """
    difference_S = mechanism.values - baseline.values
    over_seeds = compare_on_these_rows(
        difference_S,
        margin,
        largest_difference=score.largest_difference,
        larger_is_better=score.larger_is_better,
    )
    # a score that never allows a test over rows has no verdict over seeds either
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

    It includes the variance from tuning, and that of few training rows.

    Args:
        score: of the values.
        scored: scores of a mechanism or decoder.
        without_seeds: for a decoder without a seed: only the rows vary.

    Returns:
        The two ends. None for fewer than two seeds, rows or groups, if the score or
        these rows allow no claim, or if the contributions of rows are so skewed that
        their mean is not yet normal.
    """
    by_row_SN = scored.by_row
    groups = scored.groups
    if by_row_SN is None or scored.no_claim_reason:
        return None
    if score.is_share_of_hits:
        return two_level_interval(
            by_row_SN,
            without_seeds=without_seeds,
            groups=groups,
            tuning_variance=scored.tuning_variance,
            train_rows=scored.train_rows,
        )
    num_seeds, num_rows = by_row_SN.shape
    num_units = num_rows if groups is None else len(groups)
    fewest_seeds = 1 if without_seeds else 2
    if num_units < 2 or num_seeds < fewest_seeds:
        return None

    if _is_too_skewed(score, by_row_SN):
        return None

    anova = crossed(by_row_SN, groups)
    half_width = anova.critical_distance(
        ALPHA / 2, _variance_from_unseen_rows(scored.unseen_change, groups)
    )
    half_width *= _widening(by_row_SN, anova, groups)
    anova = anova._replace(
        tuning_variance=scored.tuning_variance, train_rows=scored.train_rows
    )
    low, high = with_training_variance(
        (anova.mean - half_width, anova.mean + half_width), anova, ALPHA / 2
    )
    return max(score.lowest, low), min(score.highest, high)


def _widening(
    by_row_SN: NDArray[np.bool_] | Floats, anova: Crossed, groups: RowGroups | None
) -> float:
    """Factor by which the interval of a mean score is widened; at least 1.

    Few seeds may by chance agree too well. So the variance behind the interval is at
    least that of the mean of a single seed over the rows. The interval of an accuracy
    has the same lower bound.

    Args:
        by_row_SN: the contribution of every row to the score of every seed.
        anova: analysis of variance of these contributions.
        groups: rows that belong together; None: every row is a unit.
    """
    num_rows = by_row_SN.shape[1]
    variance_of_one_seed = float(by_row_SN.var(axis=1).mean()) / num_rows
    if groups is not None:
        # variance of the mean of a seed, if the groups vary independently
        effect_SG = groups.effects_on_mean(by_row_SN)
        variance_S = np.sum(effect_SG**2, axis=1)
        variance_of_one_seed = max(variance_of_one_seed, float(variance_S.mean()))
    # no factor widens an interval without any variance
    if 0 < anova.variance < variance_of_one_seed:
        return float((variance_of_one_seed / anova.variance) ** 0.5)
    return 1.0


def _is_too_skewed(score: Score, by_row_SN: NDArray[np.bool_] | Floats) -> bool:
    """Whether the rows are too few, given their skewness, for a normal mean.

    Their mean is nearly normal from ``SKEWED`` rows per squared skewness on. Only in a
    score without bound may a single row outweigh all others.

    Args:
        score: of the rows.
        by_row_SN: the contribution of every row to the score, or to a difference.
    """
    has_bound = math.isfinite(score.largest_difference)
    if has_bound:
        return False
    value_N = by_row_SN.mean(0)
    deviation_N = value_N - value_N.mean()
    variance = float(np.mean(deviation_N**2))
    # equal values have no skewness; below this limit the division may overflow
    if variance < 1e-300:
        return False
    skewness = float(np.mean((deviation_N / variance**0.5) ** 3))
    return len(value_N) < SKEWED * skewness**2
