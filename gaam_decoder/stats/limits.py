"""Tests of a mean difference over S seeds and N test rows, and their intervals.

An interval holds all differences that a test does not reject. ``MeanLimits`` serves
the mean of any score. ``Limits`` serves rows that are right or wrong, and counts rare
rows that the sample may lack.

A unit is a row, or a group of rows that belong together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from scipy.special import gammaincc, ndtr, ndtri

from gaam_decoder.stats.crossed import Crossed

ALPHA = 0.05
RULE_OF_THREE = 1.107
"""Factor of the variance of unseen rows. With it, the one-sided 95% limit of an event
without cases in N rows is the exact one, ``-ln(0.05) / N``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanLimits:
    """Tests of hypothetical mean differences theta against the observed one."""

    effects: Crossed  # the observed difference and its mean squares
    unseen: float = 0.0
    """Variance of the mean from rare rows that the test rows may lack."""
    highest: float = 1.0  # largest possible difference

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        p_of_t = 2 * self._tail(0.0, abs(self.effects.mean))
        return min(1.0, max(p_of_t, self.p_others))

    @property
    def p_others(self) -> float:
        """The largest p of further tests, which must reject as well; 0 without any."""
        return 0.0

    def p_equivalent(self, margin: float) -> float:
        """Larger of the one-sided p-values of the margin and of its negative."""
        return max(
            self._tail(margin, margin - self.effects.mean),
            self._tail(-margin, margin + self.effects.mean),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        half = self._distance(0.0, level / 2)
        low = self.effects.mean - half
        high = self.effects.mean + half
        return max(low, -self.highest), min(high, self.highest)

    def decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether at least half of all experiments like this one would give a verdict.

        Their mean differences vary around the observed one, with its variance.

        Args:
            margin: of equivalence.
            level: of each test.
        """
        size = abs(self.effects.mean)
        if self.p_others < level and size > self._distance(0.0, level / 2):
            return True

        # a mean nearer to 0 than this is equivalent
        inside = margin - max(self._distance(side * margin, level) for side in (1, -1))
        spread = self.effects.variance**0.5
        if spread == 0:
            return inside > size
        power = ndtr((inside - size) / spread) - ndtr((-inside - size) / spread)
        return bool(power > 0.5)

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """The limits to expect from so many seeds and rows of the same kinds."""
        fewer = self.effects.num_rows / num_rows
        effects = self.effects.resized(num_seeds, num_rows)
        return replace(self, effects=effects, unseen=self.unseen * fewer**2)

    def _tail(self, theta: float, distance: float) -> float:
        """One-sided p of a mean at this distance from theta."""
        return self.effects.tail(distance, self._unseen_variance(theta))

    def _distance(self, theta: float, tail: float) -> float:
        """Distance of a mean from theta at which the one-sided p is ``tail``."""
        return self.effects.distance(tail, self._unseen_variance(theta))

    def _unseen_variance(self, theta: float) -> float:  # noqa: ARG002
        """Additional variance of the mean, of rows that the sample lacks."""
        return self.unseen


class Side(NamedTuple):
    """The units in favour of one mechanism: by how many rows, as a mean over seeds."""

    mean: float  # over all units; those in favour of the other mechanism count 0
    mean_square: float  # over the same units


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(MeanLimits):
    """Tests of a mean difference if every row is right or wrong."""

    better: float
    """Sum of the positive row differences, divided by N; a row difference is a mean
    over the seeds."""
    worse: float  # the same of the negative differences, with a positive sign
    better_units: Side
    worse_units: Side
    p_rows: float  # of the exact test over units; 0 if that test was not made
    clustering: float = 1.0
    """How many times as much group totals vary as those of so many independent rows."""

    @property
    def p_others(self) -> float:
        """Larger p of the exact test over units and the Poisson test of rare units.

        A few units that count much may outweigh many that count little, and the sample
        may lack them. The null hypothesis of the Poisson test is that both sides are
        equally large in truth. Its p is the probability of a smaller side as small as
        the observed one. The size of a unit of the smaller side is estimated from its
        units, and from one more row that counts fully.
        """
        num_units = self.effects.num_rows
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
        growth = (num_rows / self.effects.num_rows) ** 0.5
        return replace(
            self,
            effects=self.effects.resized(num_seeds, num_rows),
            p_rows=2 * float(ndtr(ndtri(self.p_rows / 2) * growth)),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        # 0 is inside exactly if p is not below the level, whichever test made p
        if self.p >= level:
            low = min(self._limit(-1.0, level), 0.0)
            high = max(self._limit(1.0, level), 0.0)
            return low, high
        if self.effects.mean > 0:
            return self._limit(0.0, level), self._limit(1.0, level)
        return self._limit(-1.0, level), self._limit(0.0, level)

    def _limit(self, end: float, level: float) -> float:
        """The last theta between the mean and ``end`` that is not rejected."""
        inner = self.effects.mean
        outer = end
        for _ in range(50):
            theta = (inner + outer) / 2
            if abs(theta - self.effects.mean) < self._distance(theta, level / 2):
                inner = theta
            else:
                outer = theta
        return (inner + outer) / 2

    def _unseen_variance(self, theta: float) -> float:
        """Additional variance of the mean, if theta were true.

        A difference of theta may need more rows to differ than did. For one seed, the
        variance at theta follows from the likeliest shares of rows in favour of each
        mechanism, given that their difference is theta. The result is what this
        variance exceeds the observed one by.
        """
        size = abs(theta)
        in_favour = self.better
        against = self.worse
        if theta < 0:
            in_favour = self.worse
            against = self.better

        # the likeliest share against solves a quadratic equation (Tango 1998)
        half = (size * (2 - in_favour + against) - in_favour - against) / 4
        share_against = (half**2 + against * size * (1 - size) / 2) ** 0.5 - half
        at_theta = 2 * share_against + size - size**2
        observed = in_favour + against - (in_favour - against) ** 2
        unseen = max(0.0, at_theta - observed) * self.clustering
        rows = self.effects.num_rows * self.effects.rows_each
        variance: float = RULE_OF_THREE * unseen / rows
        return variance
