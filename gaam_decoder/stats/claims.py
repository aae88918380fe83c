"""What may be said of two mechanisms: better, worse, equivalent, undecided, or no claim at all.

S seeds that both have, N test rows.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.crossed import crossed
from gaam_decoder.stats.groups import LEAST_GROUPS, RowGroups, row_groups
from gaam_decoder.stats.limits import ALPHA, Limits, MeanLimits, Side
from gaam_decoder.stats.paired import (
    LEAST_SEEDS,
    NO_CLAIM,
    OnTheseRows,
    Verdict,
    holm,
    on_these_rows,
    sign_flip_of_rows,
    verdict_of,
)

MARGIN = 0.005
"""Half a point: differences of published tables that are called better are rarely smaller."""
MOST_SEEDS = 1000  # that are worth proposing
MOST_TESTS = 64  # of one row, in repeated cross-validations
Hits = NDArray[np.bool_] | NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One mechanism minus another over seeds and test rows. Fractions, not percent."""

    num_seeds: int
    num_rows: int
    margin: float
    difference: float
    interval: tuple[float, float] | None  # 95%, over seeds and rows
    p: (
        float | None
    )  # two-sided, over seeds and rows; None for fewer than two seeds or rows
    p_equivalent: float | None
    """Larger of two one-sided p-values against the margin, over seeds and rows."""
    on_these_rows: OnTheseRows
    p_holm: float | None = (
        None  # ``p`` corrected for the other comparisons of its family; None alone
    )
    p_equivalent_holm: float | None = None
    num_tests: int = 1  # that it was corrected for
    step: int = (
        1  # tests for which the step of Holm's procedure corrects that decided this one
    )
    limits: MeanLimits | None = field(default=None, repr=False)
    """What the numbers are from; None for fewer than two seeds or rows."""
    larger_is_better: bool = True  # False of losses: what is smaller is better then
    no_claim: str = ""  # why the score, or the data, allow no claim; '' where they do
    num_groups: int | None = (
        None  # of rows that belong together; None: every row is a unit
    )

    @property
    def verdict(self) -> Verdict:
        """Better or worse where p is below 0.05, else equivalent where that of equivalence is.

        The corrected ones, where there are any. Undecided where neither is, and with fewer than 6
        seeds; no claim where the score or the data allow none.
        """
        if self.no_claim:
            return NO_CLAIM
        ahead = self.difference if self.larger_is_better else -self.difference
        return verdict_of(
            self.num_seeds, ahead, self.p_decisive, self.p_equivalent_decisive
        )

    @property
    def p_decisive(self) -> float | None:
        """``p``, corrected where it was."""
        return self.p if self.p_holm is None else self.p_holm

    @property
    def p_equivalent_decisive(self) -> float | None:
        """``p_equivalent``, corrected where it was."""
        return (
            self.p_equivalent
            if self.p_equivalent_holm is None
            else self.p_equivalent_holm
        )

    @property
    def significant(self) -> bool:
        """Whether there is a difference, over seeds and rows."""
        return self.verdict in ("better", "worse")

    @property
    def negligible(self) -> bool:
        """Whether the difference is smaller than the margin, whatever else there is."""
        equal = self.p_equivalent_decisive
        return self.num_seeds >= LEAST_SEEDS and equal is not None and equal < ALPHA

    @property
    def testable(self) -> bool:
        """Whether there is a p, and seeds enough to go by it."""
        return self.p is not None and self.num_seeds >= LEAST_SEEDS

    @property
    def silent(self) -> bool:
        """Whether there are seeds enough, and the data allowed no claim."""
        return bool(self.no_claim) and self.num_seeds >= LEAST_SEEDS

    @property
    def interval_corrected(self) -> tuple[float, float] | None:
        """The interval at the level that decided: it leaves out 0 exactly if there is a difference.

        None where there is no verdict to make: fewer than 6 seeds, or no claim.

        Source: Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for
            the Holm procedure"; of a difference that was found, at the level of its own step.
        """
        if self.limits is None or not self.testable:
            return None
        return self.limits.interval(ALPHA / self.step)

    @property
    def seeds_to_decide(self) -> int | None:
        """Fewest seeds that would decide with these test rows, if what was estimated is so.

        As often as not, for chance puts the next difference nearer or further, and at the level of
        the smallest p of all comparisons. None where it is decided, and where no number up to 1,000
        would.
        """
        least = max(self.num_seeds, LEAST_SEEDS)
        num_units = self.num_groups or self.num_rows
        return self._fewest(least, MOST_SEEDS, lambda seeds: (seeds, num_units))

    @property
    def rows_to_decide(self) -> int | None:
        """About how many test rows would decide with these seeds, to two digits.

        None where it is decided, where not even a thousand times as many would, where there are
        too few seeds for any claim, and where groups are the unit.
        """
        return None if self.num_groups else self._units_to_decide(self.num_rows)

    @property
    def groups_to_decide(self) -> int | None:
        """The same of groups of the sizes that there are, where groups are the unit."""
        return self._units_to_decide(self.num_groups) if self.num_groups else None

    def _units_to_decide(self, there: int) -> int | None:
        if self.num_seeds < LEAST_SEEDS:
            return None
        least, most = there + 1, 1000 * there
        units = self._fewest(least, most, lambda units: (self.num_seeds, units))
        if units is None:
            return None
        return max(least, int(round(units, 1 - math.floor(math.log10(units)))))

    def _fewest(
        self, low: int, high: int, size: Callable[[int], tuple[int, int]]
    ) -> int | None:
        """The smallest number whose (seeds, units) decide; None if it is decided, or none does.

        What more of decides once, it decides for good, but where a difference lies next to the
        margin.
        """
        limits, level = self.limits, ALPHA / self.num_tests
        if limits is None or self.verdict != "undecided" or low > high:
            return None

        def decides(number: int) -> bool:
            return limits.resized(*size(number)).decide(self.margin, level)

        return (
            low + bisect_left(range(low, high), True, key=decides)
            if decides(high)
            else None
        )


def holm_corrected(claims: Sequence[Claim], untested: int = 0) -> list[Claim]:
    """Claims of one family, corrected for one another; those that are not testable as they are.

    The tests of a difference and those of equivalence are a family each. A claim that the data
    did not allow counts as a test that found nothing.

    Args:
        claims: all that were tested.
        untested: more tests, as if they found nothing; which are so may depend on the results.
    """
    tested = [claim for claim in claims if claim.testable]
    total = len(tested) + sum(claim.silent for claim in claims) + untested
    p_M, equal_M = np.ones((2, total))
    p_M[: len(tested)] = [claim.p for claim in tested]
    equal_M[: len(tested)] = [claim.p_equivalent for claim in tested]
    differ_M = holm(p_M)
    # what is not rejected was decided at the first step that rejected nothing
    place_M = np.minimum(p_M.argsort(kind="stable").argsort(), (differ_M < ALPHA).sum())
    columns = zip(
        differ_M.tolist(), holm(equal_M).tolist(), place_M.tolist(), strict=True
    )
    found = []
    for claim in claims:
        if claim.testable:
            p, equal, place = next(columns)
            about = {"p_holm": p, "p_equivalent_holm": equal, "num_tests": total}
            claim = replace(claim, **about, step=total - place)
        found.append(claim)
    return found


def claim(
    hits: Hits,
    baseline_hits: Hits,
    *,
    margin: float = MARGIN,
    choice: float = 0.0,
    train_rows: float = math.inf,
    groups: RowGroups | Sequence[Any] | NDArray[Any] | None = None,
) -> Claim:
    """What S seeds on N test rows say of a mechanism and a baseline.

    The differences ``hits - baseline_hits`` have crossed random effects of seeds and rows. Is their
    mean zero? A t test with the variance that ``crossed`` gives, and where the two differ on fewer
    than 100 rows an exact sign-flip test over rows as well: the larger p counts. Is it smaller
    than the margin? The same t test, one-sided, against the margin and its negative. The interval
    holds all differences that the test does not reject.

    Where a difference of theta would need more rows to differ than did, the variance at theta
    counts these rows too: rows that never differ do not show that none ever would. Nor is there a
    difference where as much in favour of the other may by chance not be among the rows: a few rows
    that count much against many that count little.

    Test rows are independent of one another, and so are seeds. Rows of one speaker, or
    duplicates, are not: with ``groups`` their group is the unit, of which there are effects beside
    those of seeds, and over which the exact test goes. Degrees of freedom follow their number, and
    with fewer than six nothing is claimed. A few seeds, or groups, cannot know of what happens to
    one in many: where one seed in ten collapses and none of six did, p is too small.

    >>> hits = np.ones((6, 100), bool)
    >>> gaam_decoder.stats.claim(hits, ~hits).verdict
    'better'

    Args:
        hits: (S, N), whether each seed is right on each row; or the share of several tests of the
            row in which it is.
        baseline_hits: (S, N), of the baseline under the same seeds on the same rows.
        margin: largest difference that does not matter, a fraction.
        choice: variance of the difference that comes from what was chosen by validation, such as
            learning rates: the sum of both, as ``choice_of`` has it.
        train_rows: that both learned from; where test rows are more, which rows were learned from
            matters more than which are tested, and test rows count as no more.
        groups: (N,), what the group of every row is called; where every row has a name of its
            own, that is as without.

    Raises:
        ValueError: not the same shape, no seed, no row, what is not between 0 and 1, no margin
            above 0, no training rows, or not a group for every row.

    Source: see ``crossed``; equivalence with readers and cases: Chen, Petrick and Sahiner 2012,
        "Hypothesis testing in noninferiority and equivalence MRMC ROC studies"; two one-sided
        tests: Schuirmann 1987; the variance at theta: Tango 1998, for paired proportions; groups:
        see ``RowGroups``.
    """
    one, other = np.asarray(hits), np.asarray(baseline_hits)
    if one.shape != other.shape or one.ndim != 2 or not one.size:
        raise ValueError("hits of both, (seeds, rows), one of each at least")
    for each in (one, other):
        if each.dtype.kind not in "biuf" or not (each.min() >= 0 and each.max() <= 1):
            raise ValueError("hits are true or false, or finite shares from 0 to 1")
    kind = np.int8 if one.dtype == other.dtype == np.bool_ else np.float64
    difference_SN: NDArray[Any] = one.astype(kind) - other.astype(kind)
    if not (0 < margin < 1 and train_rows > 0):
        raise ValueError(
            "a margin is a fraction above 0 and below 1; training rows are some"
        )
    num_seeds, num_rows = difference_SN.shape
    units = groups if isinstance(groups, RowGroups) else row_groups(groups)
    named = len(units.group_N) if units else num_rows if groups is None else len(groups)
    if named != num_rows:
        raise ValueError("groups are one name for every row")
    difference_S = difference_SN.mean(1, dtype=np.float64)
    both = num_seeds > 1 and num_rows > 1
    about: dict[str, Any] = {
        "num_seeds": num_seeds,
        "num_rows": num_rows,
        "margin": margin,
    }
    about["difference"] = float(difference_S.mean())
    about["on_these_rows"] = on_these_rows(difference_S, margin)
    about["num_groups"] = units and len(units)
    why = too_few(units)
    if why or not both:
        return Claim(interval=None, p=None, p_equivalent=None, no_claim=why, **about)
    difference_N = difference_SN.mean(0, dtype=np.float64)
    unit_SU, unit_U, clustering = _whole(difference_SN), difference_N, 1.0
    if units is not None:
        unit_SU, unit_U = units.totals(unit_SU), units.totals(difference_N[None])[0]
        clustering = _clustering(difference_N, units)
    limits = Limits(
        found=crossed(difference_SN, units)._replace(
            choice=choice, train_rows=float(train_rows)
        ),
        better=float(np.maximum(difference_N, 0).mean()),
        worse=float(np.maximum(-difference_N, 0).mean()),
        better_units=_side(unit_U),
        worse_units=_side(-unit_U),
        p_rows=sign_flip_of_rows(unit_SU.sum(0)),
        clustering=clustering,
    )
    return Claim(
        interval=limits.interval(),
        p=limits.p,
        p_equivalent=limits.p_equivalent(margin),
        limits=limits,
        **about,
    )


def too_few(groups: RowGroups | None) -> str:
    """Why so few groups allow no claim; empty where they do, and where rows are the unit."""
    if groups is None or len(groups) >= LEAST_GROUPS:
        return ""
    there = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    return f"{there} of rows, and a claim needs {LEAST_GROUPS}"


def _clustering(difference_N: NDArray[np.float64], groups: RowGroups) -> float:
    """How many times as much group totals vary as those of independent rows; 1 at least.

    As if one row more had been seen of each, for where nothing varies nobody knows.
    """
    num_rows = len(difference_N)
    beyond_G = num_rows * groups.beyond_share(difference_N[None])[0]
    of_groups = float(np.sum(groups.correction_G * beyond_G**2))
    return max(1.0, (of_groups + 1) / (num_rows * float(np.var(difference_N)) + 1))


def _side(difference_U: NDArray[np.float64]) -> Side:
    for_it_U = np.maximum(difference_U, 0)
    return Side(float(for_it_U.mean()), float(np.square(for_it_U).mean()))


def _whole(difference_SN: NDArray[Any]) -> NDArray[Any]:
    """The same as whole numbers, of shares of a few tests of every row; or as it is."""
    if difference_SN.dtype == np.int8:
        return difference_SN
    for tests in range(1, MOST_TESTS + 1):
        whole_SN = np.rint(difference_SN * tests)
        if np.abs(difference_SN * tests - whole_SN).max() < 1e-9:
            return whole_SN.astype(np.int64)
    return difference_SN
