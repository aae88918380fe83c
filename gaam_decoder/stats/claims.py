"""The verdict on two mechanisms: better, worse, equivalent, undecided, or no claim.

``claim`` compares right and wrong test rows of a mechanism and a baseline over seeds.
``holm_corrected`` corrects several claims for one another.

S seeds of both mechanisms, N test rows, U units (rows or groups), M comparisons.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.crossed import Crossed, crossed
from gaam_decoder.stats.groups import LEAST_GROUPS, RowGroups, row_groups
from gaam_decoder.stats.mean_test import ALPHA, HitsTest, Lead, MeanTest
from gaam_decoder.stats.paired import (
    LEAST_SEEDS,
    NO_CLAIM,
    OnTheseRows,
    Verdict,
    compare_on_these_rows,
    holm,
    sign_flip_of_rows,
    verdict_of,
)

MARGIN = 0.005
"""Half a point: tables of papers rarely call a smaller difference better."""
MOST_SEEDS = 1000  # the largest number of seeds that is worth proposing
MOST_TESTS = 64  # tests of one row, in repeated cross-validations
Hits = NDArray[np.bool_] | NDArray[np.floating]
Differences = NDArray[np.integer] | NDArray[np.floating]
Groups = RowGroups | Sequence[object] | NDArray[np.generic]
"""Groups of rows, or the name of the group of every row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One mechanism minus another over seeds and test rows. Fractions, not percent."""

    num_seeds: int
    num_rows: int
    margin: float
    difference: float
    interval: tuple[float, float] | None  # 95%, over seeds and rows
    p: float | None
    """Two-sided, over seeds and rows; None for fewer than two seeds or rows."""
    p_equivalent: float | None
    """Of two one-sided tests against the margin, over seeds and rows; None like p."""
    on_these_rows: OnTheseRows
    p_holm: float | None = None
    """``p``, corrected for the comparisons of its family; None without a family."""
    p_equivalent_holm: float | None = None
    num_tests: int = 1  # comparisons of the family
    holm_divisor: int = 1
    """The level is divided by this: the comparisons that Holm's procedure had not yet
    rejected when it decided this one."""
    test_over_rows: MeanTest | None = field(default=None, repr=False)
    """Makes p-values and intervals; None for fewer than two seeds or rows."""
    larger_is_better: bool = True  # False for losses
    no_claim_reason: str = ""
    """Why the score or the data allow no claim; empty if they allow one."""
    num_groups: int | None = None  # None: every row is a unit

    @property
    def verdict(self) -> Verdict:
        """Better or worse if ``p`` is below 0.05; else equivalent, or undecided.

        Equivalent if ``p_equivalent`` is below 0.05. In a family of claims the
        corrected p-values decide. With fewer than 6 seeds the verdict is undecided. It
        is "no claim" if the score or the data allow none.
        """
        if self.no_claim_reason:
            return NO_CLAIM
        improvement = self.difference if self.larger_is_better else -self.difference
        return verdict_of(
            self.num_seeds,
            improvement,
            self.p_of_verdict,
            self.p_equivalent_of_verdict,
        )

    @property
    def p_of_verdict(self) -> float | None:
        """The p that decides: ``p_holm`` in a family of claims, else ``p``."""
        if self.p_holm is None:
            return self.p
        return self.p_holm

    @property
    def p_equivalent_of_verdict(self) -> float | None:
        """The p of equivalence that decides.

        It is ``p_equivalent_holm`` in a family of claims, else ``p_equivalent``.
        """
        if self.p_equivalent_holm is None:
            return self.p_equivalent
        return self.p_equivalent_holm

    def with_test(self, test_over_rows: MeanTest) -> "Claim":
        """The claim with a test over seeds and rows, and what follows from it."""
        return replace(
            self,
            interval=test_over_rows.interval(),
            p=test_over_rows.p,
            p_equivalent=test_over_rows.p_equivalent(self.margin),
            test_over_rows=test_over_rows,
        )

    @property
    def significant(self) -> bool:
        """Whether the verdict is a difference, over seeds and rows."""
        return self.verdict in ("better", "worse")

    @property
    def negligible(self) -> bool:
        """Whether the difference is significantly smaller than the margin.

        It may significantly differ from 0 at the same time.
        """
        p_equivalent = self.p_equivalent_of_verdict
        if p_equivalent is None or self.num_seeds < LEAST_SEEDS:
            return False
        return p_equivalent < ALPHA

    @property
    def testable(self) -> bool:
        """Whether there is a p, and enough seeds for a verdict."""
        return self.p is not None and self.num_seeds >= LEAST_SEEDS

    @property
    def refused_by_data(self) -> bool:
        """Whether the score or data allow no claim, although there are enough seeds."""
        return bool(self.no_claim_reason) and self.num_seeds >= LEAST_SEEDS

    @property
    def interval_corrected(self) -> tuple[float, float] | None:
        """The interval at the level at which Holm's procedure decided this comparison.

        It excludes 0 exactly if the verdict is a difference. None for fewer than 6
        seeds, and without a claim.

        Source: Strassburger and Bretz 2008, "Compatible simultaneous lower confidence
            bounds for the Holm procedure"; a significant difference has the level of
            its own step.
        """
        if self.test_over_rows is None or not self.testable:
            return None
        return self.test_over_rows.interval(ALPHA / self.holm_divisor)

    @property
    def seeds_to_decide(self) -> int | None:
        """Fewest seeds on these rows that would give a difference or equivalence.

        The chance that they do so is about even, if the estimates of this claim are
        true. None if the claim is decided, or if 1,000 seeds would not decide it.
        """
        num_units = self.num_groups or self.num_rows

        def decides(num_seeds: int) -> bool:
            return self._would_decide(num_seeds, num_units)

        least = max(self.num_seeds, LEAST_SEEDS)
        return self._fewest_to_decide(least, MOST_SEEDS, decides)

    @property
    def rows_to_decide(self) -> int | None:
        """About how many test rows would decide with these seeds, to two digits.

        None if the claim is decided, if a thousand times as many rows would not decide
        it, if there are too few seeds for a claim, or if groups are the unit.
        """
        if self.num_groups:
            return None
        return self._units_to_decide(self.num_rows)

    @property
    def groups_to_decide(self) -> int | None:
        """About how many groups of the same sizes would decide, to two digits.

        None where ``rows_to_decide`` would be None, and if rows are the unit.
        """
        if not self.num_groups:
            return None
        return self._units_to_decide(self.num_groups)

    @property
    def factor_to_decide(self) -> int | None:
        """How many times as many seeds and test rows would decide, together.

        Groups take the place of rows if they are the unit. None if the claim is
        decided, or if a thousand times as many would not decide it.
        """
        num_units = self.num_groups or self.num_rows

        def decides(factor: int) -> bool:
            num_seeds = max(factor * self.num_seeds, LEAST_SEEDS)
            return self._would_decide(num_seeds, factor * num_units)

        return self._fewest_to_decide(2, 1000, decides)

    @property
    def limited_by_training(self) -> bool:
        """Whether only the variance from tuning and training rows leaves it undecided.

        More seeds and test rows do not reduce that variance.
        """
        if self.test_over_rows is None or self.factor_to_decide is not None:
            return False
        anova = self.test_over_rows.anova
        anova = anova._replace(tuning_variance=0.0, train_rows=math.inf)
        test_without_training = replace(self.test_over_rows, anova=anova)
        claim_without_training = replace(self, test_over_rows=test_without_training)
        return claim_without_training.factor_to_decide is not None

    def _units_to_decide(self, num_units: int) -> int | None:
        """About how many units would decide, to two digits; above ``num_units``.

        None if the claim is decided, if a thousand times as many units would not decide
        it, or if there are too few seeds for a claim.
        """
        if self.num_seeds < LEAST_SEEDS:
            return None

        def decides(larger_num_units: int) -> bool:
            return self._would_decide(self.num_seeds, larger_num_units)

        smallest_to_try = num_units + 1
        smallest_that_decides = self._fewest_to_decide(
            smallest_to_try, 1000 * num_units, decides
        )
        if smallest_that_decides is None:
            return None
        num_digits = math.floor(math.log10(smallest_that_decides)) + 1
        rounded = int(round(smallest_that_decides, 2 - num_digits))
        # rounding may give a number that did not decide
        return max(smallest_to_try, rounded)

    def _would_decide(self, num_seeds: int, num_units: int) -> bool:
        """Whether so many seeds and units would decide about every second time."""
        if self.test_over_rows is None:
            return False
        # the first step of Holm's procedure has the smallest level
        level = ALPHA / self.num_tests
        resized_test = self.test_over_rows.resized(num_seeds, num_units)
        return resized_test.would_decide(self.margin, level)

    def _fewest_to_decide(
        self, least: int, most: int, decides: Callable[[int], bool]
    ) -> int | None:
        """The smallest number of seeds or units that would decide.

        Args:
            least: the smallest number to try.
            most: the largest number to try.
            decides: whether a number of seeds or units would decide.

        Returns:
            None if the claim is decided already, or if no number decides it.
        """
        if self.test_over_rows is None or self.verdict != "undecided" or least > most:
            return None
        if not decides(most):
            return None
        # bisect: a larger sample nearly always decides what a smaller one does
        return least + bisect_left(range(least, most), True, key=decides)


def holm_corrected(claims: Sequence[Claim], untested: int = 0) -> list[Claim]:
    """Correct claims that were made together for one another, by Holm's procedure.

    Their tests of a difference are one family, their tests of equivalence another. A
    claim with too few seeds is returned unchanged, and is in no family. A claim that
    the data do not allow is returned unchanged too, but counts as a test with p = 1.
    The order of the claims stays.

    Args:
        claims: all claims that were made together.
        untested: number of tests that somebody left out. They count with p = 1, so that
            leaving out tests after a look at their results gains nothing.
    """
    tested = [claim for claim in claims if claim.testable]
    num_refused = sum(claim.refused_by_data for claim in claims)
    num_tests = len(tested) + num_refused + untested
    # the p-values of the tested claims come first; all others are 1
    p_M = np.ones(num_tests)
    p_M[: len(tested)] = [claim.p for claim in tested]
    p_equivalent_M = np.ones(num_tests)
    p_equivalent_M[: len(tested)] = [claim.p_equivalent for claim in tested]
    p_holm_M = holm(p_M)
    p_equivalent_holm_M = holm(p_equivalent_M)

    # Holm rejects the tests in the order of their p, the k-th at ALPHA / (M - k + 1).
    # It stops at the first test that it cannot reject, whose divisor all later share.
    rank_M = p_M.argsort(kind="stable").argsort()
    num_rejected = (p_holm_M < ALPHA).sum()
    num_rejected_before_M = np.minimum(rank_M, num_rejected)

    corrected = []
    test = 0  # position of the next testable claim among the tests
    for claim in claims:
        if not claim.testable:
            corrected.append(claim)
            continue
        divisor = num_tests - int(num_rejected_before_M[test])
        corrected.append(
            replace(
                claim,
                p_holm=float(p_holm_M[test]),
                p_equivalent_holm=float(p_equivalent_holm_M[test]),
                num_tests=num_tests,
                holm_divisor=divisor,
            )
        )
        test += 1
    return corrected


def claim(
    hits: Hits,
    baseline_hits: Hits,
    *,
    margin: float = MARGIN,
    tuning_variance: float = 0.0,
    train_rows: float = math.inf,
    groups: Groups | None = None,
) -> Claim:
    """Compare a mechanism with a baseline over S seeds and N test rows.

    The differences ``hits - baseline_hits`` have crossed random effects of seeds and
    rows. A t test with the variance of ``crossed`` tests whether their mean is zero. If
    the two differ on fewer than 100 rows, an exact sign-flip test over rows is made as
    well, and the larger p counts. The same t test, one-sided, tests equivalence against
    the margin and its negative. The interval holds all differences that the test does
    not reject.

    The test rows may lack rare rows, and two corrections allow for them. A difference
    of 0.1 is impossible if only 5 of 100 rows differ: a test of this difference adds
    the variance of the rows that must differ then. A difference is not significant
    either if a few unseen rows with large differences could outweigh it.

    Test rows are assumed independent of one another, and seeds too. Rows of one
    speaker, or duplicates, are not independent: with ``groups`` their group is the unit
    of the random effects and of the exact test. The degrees of freedom follow the
    number of groups, and fewer than six groups allow no claim. No test covers an event
    that no seed or group showed: if one seed in ten collapses, and none of six did,
    then p is too small.

    >>> hits = np.ones((6, 100), bool)
    >>> gaam_decoder.stats.claim(hits, ~hits).verdict
    'better'

    Args:
        hits: (S, N), whether each seed is right on each row; or in what share of
            several tests of the row it is.
        baseline_hits: (S, N), of the baseline under the same seeds on the same rows.
        margin: largest difference that does not matter, a fraction.
        tuning_variance: variance of the difference from tuning on validation rows, such
            as of the learning rates: the sum over both mechanisms, see
            ``simulate_choices``.
        train_rows: number of training rows of both. Where there are more test rows, the
            variance is that of as many test rows as training rows.
        groups: (N,), the name of the group of every row; if no two rows share a name,
            the result is that without groups.

    Raises:
        ValueError: shapes that differ, no seed, no row, hits outside 0 to 1, a margin
            that is not above 0, no training rows, or rows without a group.

    Source: see ``crossed``; equivalence with readers and cases: Chen, Petrick and
        Sahiner 2012, "Hypothesis testing in noninferiority and equivalence MRMC ROC
        studies"; two one-sided tests: Schuirmann 1987; the variance at theta: Tango
        1998, for paired proportions; groups: see ``RowGroups``.
    """
    difference_SN = _differences_of_hits(np.asarray(hits), np.asarray(baseline_hits))
    if not (0 < margin < 1 and train_rows > 0):
        raise ValueError(
            "a margin is a fraction above 0 and below 1, "
            "and the number of training rows is above 0"
        )
    units = _checked_groups(groups, difference_SN.shape[1])
    without_test = _claim_without_test(difference_SN, units, margin)
    # an analysis of variance needs two seeds and two rows
    if without_test.no_claim_reason or min(difference_SN.shape) < 2:
        return without_test

    anova = crossed(difference_SN, units)
    anova = anova._replace(
        tuning_variance=tuning_variance, train_rows=float(train_rows)
    )
    test_over_rows = _test_of_hits(difference_SN, anova, units)
    return without_test.with_test(test_over_rows)


def _claim_without_test(
    difference_SN: Differences, groups: RowGroups | None, margin: float
) -> Claim:
    """A claim with the difference and its test over seeds, but no test over rows."""
    num_seeds, num_rows = difference_SN.shape
    difference_S = difference_SN.mean(1, dtype=np.float64)
    return Claim(
        num_seeds=num_seeds,
        num_rows=num_rows,
        margin=margin,
        difference=float(difference_S.mean()),
        interval=None,
        p=None,
        p_equivalent=None,
        on_these_rows=compare_on_these_rows(difference_S, margin),
        num_groups=None if groups is None else len(groups),
        no_claim_reason=reason_of_few_groups(groups),
    )


def reason_of_few_groups(groups: RowGroups | None) -> str:
    """Why there are too few groups for a claim; "" for enough, and without groups."""
    if groups is None or len(groups) >= LEAST_GROUPS:
        return ""
    count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    return f"{count} of rows, and a claim needs {LEAST_GROUPS}"


def _differences_of_hits(
    hits_SN: NDArray[Any], baseline_SN: NDArray[Any]
) -> Differences:
    """Hits of the mechanism minus hits of the baseline, both checked, (S, N).

    int8 (-1, 0 or 1) if all hits are true or false, else float64.

    Raises:
        ValueError: shapes that differ, no seed, no row, or hits outside 0 to 1.
    """
    if hits_SN.shape != baseline_SN.shape or hits_SN.ndim != 2 or not hits_SN.size:
        raise ValueError(
            "the hits of both are (seeds, rows), at least one seed and one row"
        )
    for values_SN in (hits_SN, baseline_SN):
        is_number = values_SN.dtype.kind in "biuf"
        # written so that NaN is refused
        if not is_number or not (values_SN.min() >= 0 and values_SN.max() <= 1):
            raise ValueError("hits are true or false, or finite shares from 0 to 1")
    if hits_SN.dtype == baseline_SN.dtype == np.bool_:
        return hits_SN.astype(np.int8) - baseline_SN.astype(np.int8)
    return hits_SN.astype(np.float64) - baseline_SN.astype(np.float64)


def _checked_groups(groups: Groups | None, num_rows: int) -> RowGroups | None:
    """The groups of the rows; None if every row is a unit.

    Args:
        groups: the name of the group of every row, or the groups already made of them.
        num_rows: number of rows.

    Raises:
        ValueError: not one group name for every row.
    """
    if groups is None:
        return None
    units = groups if isinstance(groups, RowGroups) else row_groups(groups)
    # None: no two rows share a name, so that every row is a unit
    num_names = len(groups) if units is None else len(units.group_N)
    if num_names != num_rows:
        raise ValueError("groups hold one name for every row")
    return units


def _test_of_hits(
    difference_SN: Differences, anova: Crossed, groups: RowGroups | None
) -> HitsTest:
    """The tests of differences of hits, from which p-values and intervals follow.

    Args:
        difference_SN: hits of the mechanism minus those of the baseline.
        anova: analysis of variance of the differences.
        groups: rows that belong together; None: every row is a unit.
    """
    difference_N = difference_SN.mean(0, dtype=np.float64)
    whole_difference_SN = _as_whole_numbers(difference_SN)

    # a unit is a row, or a group: then its total takes the place of the difference
    if groups is None:
        whole_total_SU = whole_difference_SN
        mean_total_U = difference_N  # mean over the seeds
        design_effect = 1.0
    else:
        whole_total_SU = groups.totals(whole_difference_SN)
        mean_total_U = groups.totals(difference_N[None])[0]
        design_effect = _design_effect(difference_N, groups)
    return HitsTest(
        anova=anova,
        share_better=float(np.maximum(difference_N, 0).mean()),
        share_worse=float(np.maximum(-difference_N, 0).mean()),
        lead_of_mechanism=_lead(mean_total_U),
        lead_of_baseline=_lead(-mean_total_U),
        p_exact=sign_flip_of_rows(whole_total_SU.sum(0)),
        design_effect=design_effect,
    )


def _design_effect(difference_N: NDArray[np.float64], groups: RowGroups) -> float:
    """Variance of the sum of all rows, as a multiple of that of independent rows.

    It is estimated from the totals of groups, with a lower limit.
    """
    num_rows = len(difference_N)
    effect_on_sum_G = num_rows * groups.effects_on_mean(difference_N[None])[0]
    variance_of_groups = float(np.sum(groups.variance_factor_G * effect_on_sum_G**2))
    variance_of_rows = num_rows * float(np.var(difference_N))
    # The variance of one more row that differs, 1, is added to both: where no row
    # differs, their ratio would be unknown.
    measured = (variance_of_groups + 1) / (variance_of_rows + 1)
    return max(groups.least_design_effect, measured)


def _lead(difference_U: NDArray[np.float64]) -> Lead:
    """The lead of a mechanism: of its differences of units, those above 0."""
    lead_U = np.maximum(difference_U, 0)
    return Lead(mean=float(lead_U.mean()), mean_square=float(np.square(lead_U).mean()))


def _as_whole_numbers(difference_SN: Differences) -> Differences:
    """Differences as whole numbers, for which an exact test over rows is fast.

    Where cross-validations are repeated, a row is tested several times, and its hits
    are a share of these tests. Differences of shares are multiplied by the number of
    tests. Those of more than ``MOST_TESTS`` tests come back unchanged.
    """
    # differences of true and false are whole already
    if difference_SN.dtype == np.int8:
        return difference_SN
    for num_tests in range(1, MOST_TESTS + 1):
        scaled_SN = difference_SN * num_tests
        whole_SN = np.rint(scaled_SN)
        if np.abs(scaled_SN - whole_SN).max() < 1e-9:
            numbers_SN: NDArray[np.int64] = whole_SN.astype(np.int64)
            return numbers_SN
    return difference_SN
