"""The differences that a test on S seeds and N test rows does not reject.

``MeanLimits`` tests the mean of any score. ``Limits`` tests a difference of right and
wrong rows, and counts rare rows that the sample may lack.

A unit is a row, or a group of rows that belong together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from scipy.special import gammaincc, ndtr, ndtri

from gaam_decoder.stats.crossed import Crossed

ALPHA = 0.05
RULE_OF_THREE = 1.107
"""Factor that makes the one-sided limit of an event without cases ``-ln(0.05) / N``, as
is exact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanLimits:
    """Tests of hypothetical mean differences theta against the observed one."""

    found: Crossed  # the observed difference and its mean squares
    unseen: float = 0.0
    """Variance of the mean from rare rows that the test rows may lack."""
    highest: float = 1.0  # largest possible difference

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        p_of_t = 2 * self._tail(0.0, abs(self.found.mean))
        return min(1.0, max(p_of_t, self.p_others))

    @property
    def p_others(self) -> float:
        """The largest p of other tests that have to agree; 0 without any."""
        return 0.0

    def p_equivalent(self, margin: float) -> float:
        """Larger of the one-sided p-values of the margin and of its negative."""
        return max(
            self._tail(margin, margin - self.found.mean),
            self._tail(-margin, margin + self.found.mean),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        half = self._distance(0.0, level / 2)
        low = self.found.mean - half
        high = self.found.mean + half
        return max(low, -self.highest), min(high, self.highest)

    def decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether at least half of all experiments like this one give a verdict.

        The experiments have this mean difference on average, and its variance.

        Args:
            margin: of equivalence.
            level: of each test.
        """
        size = abs(self.found.mean)
        if self.p_others < level and size > self._distance(0.0, level / 2):
            return True

        # a mean nearer to 0 than this is equivalent
        inside = margin - max(self._distance(side * margin, level) for side in (1, -1))
        spread = self.found.variance**0.5
        if spread == 0:
            return inside > size
        power = ndtr((inside - size) / spread) - ndtr((-inside - size) / spread)
        return bool(power > 0.5)

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """The limits to expect from so many seeds and rows of the same kinds."""
        fewer = self.found.num_rows / num_rows
        found = self.found.resized(num_seeds, num_rows)
        return replace(self, found=found, unseen=self.unseen * fewer**2)

    def _tail(self, theta: float, distance: float) -> float:
        """One-sided p of a mean at this distance from theta."""
        return self.found.tail(distance, self._more(theta))

    def _distance(self, theta: float, tail: float) -> float:
        """Distance of a mean from theta at which the one-sided p is ``tail``."""
        return self.found.distance(tail, self._more(theta))

    def _more(self, theta: float) -> float:  # noqa: ARG002
        """Additional variance of rows that the sample lacks, if theta were true."""
        return self.unseen


class Side(NamedTuple):
    """Contribution of the units in favour of one mechanism, in rows, over all seeds."""

    mean: float  # over all units; the other units count 0
    mean_square: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(MeanLimits):
    """Tests of a mean difference if every row is right or wrong."""

    better: float
    """Mean over the rows of the differences in favour of the mechanism, each over all
    seeds of a row."""
    worse: float  # the same in favour of the baseline
    better_units: Side
    worse_units: Side
    p_rows: float  # of the exact test over units; 0 if that test was not made
    clustering: float = 1.0
    """How many times as much group totals vary as those of so many independent rows."""

    @property
    def p_others(self) -> float:
        """Larger p of the exact test over units and the Poisson test of rare units.

        A few units that count much may outweigh many that count little, and the sample
        may lack them. The Poisson test asks how probable so little of the smaller side
        is, if it were as large as the larger one. The size of a unit of the smaller
        side is estimated from its units, and from one more row that counts fully.
        """
        num_units = self.found.num_rows
        smaller, larger = sorted([self.better_units, self.worse_units])
        unit_size = (smaller.mean_square * num_units + 1) / (
            smaller.mean * num_units + 1
        )
        observed = smaller.mean * num_units / unit_size
        expected = larger.mean * num_units / unit_size
        p_rare = 2 * float(gammaincc(observed + 1, expected))
        return max(self.p_rows, min(1.0, p_rare))

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """The limits to expect from so many seeds and units of the same kinds."""
        more = (num_rows / self.found.num_rows) ** 0.5
        return replace(
            self,
            found=self.found.resized(num_seeds, num_rows),
            p_rows=2 * float(ndtr(ndtri(self.p_rows / 2) * more)),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All theta on both sides of the mean that a two-sided test does not reject."""
        # 0 is inside exactly if p does not reject it, whichever test decides
        if self.p >= level:
            low = min(self._limit(-1.0, level), 0.0)
            high = max(self._limit(1.0, level), 0.0)
            return low, high
        if self.found.mean > 0:
            return self._limit(0.0, level), self._limit(1.0, level)
        return self._limit(-1.0, level), self._limit(0.0, level)

    def _limit(self, end: float, level: float) -> float:
        """The furthest theta from the mean towards ``end`` that is not rejected."""
        near = self.found.mean
        far = end
        for _ in range(50):
            theta = (near + far) / 2
            if abs(theta - self.found.mean) < self._distance(theta, level / 2):
                near = theta
            else:
                far = theta
        return (near + far) / 2

    def _more(self, theta: float) -> float:
        """Additional variance of rows that would have to differ, if theta were true.

        It follows from the shares of rows in favour of each side that are likeliest
        among those with a difference of theta, for one seed.
        """
        size = abs(theta)
        in_favour = self.better
        against = self.worse
        if theta < 0:
            in_favour = self.worse
            against = self.better

        # the likeliest share against solves a quadratic equation (Tango 1998)
        half = (size * (2 - in_favour + against) - in_favour - against) / 4
        smaller = (half**2 + against * size * (1 - size) / 2) ** 0.5 - half
        observed = in_favour + against - (in_favour - against) ** 2
        unseen = max(0.0, 2 * smaller + size - size**2 - observed) * self.clustering
        rows = self.found.num_rows * self.found.rows_each
        more: float = RULE_OF_THREE * unseen / rows
        return more
