"""Which differences are not rejected by what S seeds on N test rows show.

A unit is a row, or a group of rows that belong together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from scipy.special import gammaincc, ndtr, ndtri

from gaam_decoder.stats.crossed import Crossed

ALPHA = 0.05
RULE_OF_THREE = 1.107
"""Makes the one-sided limit of a rate that was never seen ``-ln(0.05) / N``, as is exact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanLimits:
    """Which mean differences theta of a score are too far from the one that was seen."""

    found: Crossed
    unseen: float = 0.0
    """Variance of the mean from rows that may be rare and not among those that were seen."""
    highest: float = 1.0  # largest difference that can be

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        return min(1.0, max(2 * self._tail(0.0, abs(self.found.mean)), self.p_others))

    @property
    def p_others(self) -> float:
        """The largest p of other tests that have to agree; 0 where there are none."""
        return 0.0

    def p_equivalent(self, margin: float) -> float:
        """Larger of the one-sided p of the margin and of its negative."""
        return max(
            self._tail(margin, margin - self.found.mean),
            self._tail(-margin, margin + self.found.mean),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        half = self._distance(0.0, level / 2)
        low, high = self.found.mean - half, self.found.mean + half
        return max(low, -self.highest), min(high, self.highest)

    def decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether experiments that are expected to show this give a verdict as often as not.

        Args:
            margin: of equivalence.
            level: of each test.
        """
        size = abs(self.found.mean)
        if self.p_others < level and size > self._distance(0.0, level / 2):
            return True
        inside = margin - max(self._distance(side * margin, level) for side in (1, -1))
        if (spread := self.found.variance**0.5) == 0:
            return inside > size
        # a mean that is beyond either end decides nothing
        return bool(
            ndtr((inside - size) / spread) - ndtr((-inside - size) / spread) > 0.5
        )

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """What so many seeds and rows of the same kinds would be expected to show."""
        fewer = self.found.num_rows / num_rows
        found = self.found.resized(num_seeds, num_rows)
        return replace(self, found=found, unseen=self.unseen * fewer**2)

    def _tail(self, theta: float, distance: float) -> float:
        """One-sided p of a mean so far from theta."""
        return self.found.tail(distance, self._more(theta))

    def _distance(self, theta: float, tail: float) -> float:
        return self.found.distance(tail, self._more(theta))

    def _more(self, theta: float) -> float:  # noqa: ARG002
        """Variance that the rows would have beside what was seen, if theta were true."""
        return self.unseen


class Side(NamedTuple):
    """What the units that speak for one mechanism add, in rows, all seeds of a unit together."""

    mean: float  # over all units
    mean_square: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(MeanLimits):
    """The same where every row is right or wrong."""

    better: float
    """Mean over the rows of what speaks for the one, that of all seeds of a row together."""
    worse: float  # of what speaks for the other
    better_units: Side
    worse_units: Side
    p_rows: float  # of the exact test over units; 0 where it has no say
    clustering: float = 1.0
    """How many times as much the totals of groups vary as those of so many independent rows."""

    @property
    def p_others(self) -> float:
        """Of the exact test over units, and of seeing so little of the smaller side.

        Were it as large as the larger: a few units that count much may outweigh many that count
        little, and not be among those that were seen. What is rare is Poisson; how much a unit of
        that side counts is estimated from those that were seen, and one row that counts fully.
        """
        num_units = self.found.num_rows
        (little, square), (much, _) = sorted([self.better_units, self.worse_units])
        one = (square * num_units + 1) / (little * num_units + 1)
        unseen = 2 * float(
            gammaincc(little * num_units / one + 1, much * num_units / one)
        )
        return max(self.p_rows, min(1.0, unseen))

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """What so many seeds and units of the same kinds would be expected to show."""
        more = (num_rows / self.found.num_rows) ** 0.5
        return replace(
            self,
            found=self.found.resized(num_seeds, num_rows),
            p_rows=2 * float(ndtr(ndtri(self.p_rows / 2) * more)),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All theta that a two-sided test does not reject, on both sides of the mean."""
        if (
            self.p >= level
        ):  # what was not rejected is not outside, nor what was, inside
            return min(self._limit(-1.0, level), 0.0), max(self._limit(1.0, level), 0.0)
        low, high = (0.0, 1.0) if self.found.mean > 0 else (-1.0, 0.0)
        return self._limit(low, level), self._limit(high, level)

    def _limit(self, end: float, level: float) -> float:
        """Where between the mean and ``end`` theta is as far from the mean as it may be."""
        near, far = self.found.mean, end
        for _ in range(50):
            theta = (near + far) / 2
            inside = abs(theta - self.found.mean) < self._distance(theta, level / 2)
            near, far = (theta, far) if inside else (near, theta)
        return (near + far) / 2

    def _more(self, theta: float) -> float:
        """Of the likeliest shares of rows in favour of each that differ by theta, for one seed."""
        size = abs(theta)
        for_it, against = self.better, self.worse
        if theta < 0:
            for_it, against = against, for_it
        half = (size * (2 - for_it + against) - for_it - against) / 4
        less = (half**2 + against * size * (1 - size) / 2) ** 0.5 - half
        seen = for_it + against - (for_it - against) ** 2
        unseen = max(0.0, 2 * less + size - size**2 - seen) * self.clustering
        return RULE_OF_THREE * unseen / (self.found.num_rows * self.found.rows_each)
