"""Tests of a mean difference over S seeds and N test rows, and their intervals.

Theta is a hypothetical true difference, which a test compares with the observed one.

An interval holds all differences that a test does not reject. ``MeanLimits`` serves
the mean of any score. ``Limits`` serves rows that are right or wrong, and counts rare
rows that the sample may lack.

A unit is a row, or a group of rows that belong together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from scipy.special import gammaincc, ndtr, ndtri

from gaam_decoder.stats.crossed import BISECTIONS, Crossed

ALPHA = 0.05
RULE_OF_THREE = 1.107
"""Factor of the variance of unseen rows. With it, the one-sided 95% limit of an event
without cases in N rows is the exact one, ``-ln(0.05) / N``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanLimits:
    """Tests of a mean difference, and the limits of its confidence interval.

    Theta is a hypothetical true difference, which a test compares with the observed
    one.
    """

    effects: Crossed  # the observed difference and its mean squares
    unseen_variance: float = 0.0
    """Variance of the mean from rare rows that the test rows may lack."""
    highest: float = 1.0  # largest possible difference

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        p_of_t = 2 * self._one_sided_p(0.0, abs(self.effects.mean))
        return min(1.0, max(p_of_t, self.p_of_other_tests))

    @property
    def p_of_other_tests(self) -> float:
        """The largest p of tests that must also be significant; 0 without any."""
        return 0.0

    def p_equivalent(self, margin: float) -> float:
        """Larger of the one-sided p-values of the margin and of its negative."""
        return max(
            self._one_sided_p(margin, margin - self.effects.mean),
            self._one_sided_p(-margin, margin + self.effects.mean),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        half = self._distance(0.0, level / 2)
        low = self.effects.mean - half
        high = self.effects.mean + half
        return max(low, -self.highest), min(high, self.highest)

    def would_decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether at least half of all experiments like this one would give a verdict.

        A verdict is a difference, or equivalence. The mean differences of the
        experiments vary around the observed one, with its variance.

        Args:
            margin: largest difference that does not matter.
            level: significance level of each test.
        """
        size = abs(self.effects.mean)
        differs_from_zero = size > self._distance(0.0, level / 2)
        if self.p_of_other_tests < level and differs_from_zero:
            return True

        # both one-sided tests of equivalence reject a mean from -limit to limit
        distance = max(self._distance(margin, level), self._distance(-margin, level))
        limit = margin - distance
        std_error = self.effects.variance**0.5
        if std_error == 0:
            return limit > size
        power = ndtr((limit - size) / std_error) - ndtr((-limit - size) / std_error)
        return bool(power > 0.5)

    def resized(self, num_seeds: int, num_rows: int) -> Self:
        """The limits to expect from so many seeds and units of the same kinds."""
        # the change by a single row is in inverse proportion to the number of rows
        shrinkage = self.effects.num_rows / num_rows
        effects = self.effects.resized(num_seeds, num_rows)
        return replace(
            self,
            effects=effects,
            unseen_variance=self.unseen_variance * shrinkage**2,
        )

    def _one_sided_p(self, theta: float, distance: float) -> float:
        """One-sided p of a mean at this distance from theta."""
        return self.effects.one_sided_p(distance, self._unseen_variance_at(theta))

    def _distance(self, theta: float, p: float) -> float:
        """Distance of a mean from theta at which the one-sided p is ``p``."""
        return self.effects.distance(p, self._unseen_variance_at(theta))

    def _unseen_variance_at(self, theta: float) -> float:  # noqa: ARG002
        """Variance of the mean from rows that the sample lacks, if theta were true."""
        return self.unseen_variance


class Side(NamedTuple):
    """How much the units in favour of one mechanism contribute.

    A unit contributes the number of rows by which this mechanism is ahead on it, as a
    mean over seeds. A unit on which the other mechanism is ahead contributes 0.
    """

    mean: float  # of the contributions of all units
    mean_square: float  # of the same contributions


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(MeanLimits):
    """Tests of a mean difference if every row is right or wrong."""

    better: float
    """Sum of the positive differences of rows, divided by N. The difference of a row is
    a mean over the seeds."""
    worse: float  # sum of the sizes of the negative differences, divided by N
    better_units: Side
    worse_units: Side
    p_rows: float  # of the exact test over units; 0 if that test was not made
    clustering: float = 1.0
    """How many times as much group totals vary as those of so many independent rows."""

    @property
    def p_of_other_tests(self) -> float:
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
        # a normal quantile grows with the square root of the number of rows
        growth = (num_rows / self.effects.num_rows) ** 0.5
        return replace(
            self,
            effects=self.effects.resized(num_seeds, num_rows),
            p_rows=2 * float(ndtr(ndtri(self.p_rows / 2) * growth)),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        # p may be that of another test than the limits have. The interval agrees with
        # p: 0 is inside exactly if p is not below the level.
        if self.p >= level:
            low = min(self._limit(-1.0, level), 0.0)
            high = max(self._limit(1.0, level), 0.0)
            return low, high
        if self.effects.mean > 0:
            return self._limit(0.0, level), self._limit(1.0, level)
        return self._limit(-1.0, level), self._limit(0.0, level)

    def _limit(self, end: float, level: float) -> float:
        """The theta furthest from the mean towards ``end`` that the t test accepts.

        Args:
            end: a theta that bounds the search.
            level: significance level of the two-sided test.
        """
        accepted = self.effects.mean
        rejected = end
        for _ in range(BISECTIONS):
            theta = (accepted + rejected) / 2
            if abs(theta - self.effects.mean) < self._distance(theta, level / 2):
                accepted = theta
            else:
                rejected = theta
        return (accepted + rejected) / 2

    def _unseen_variance_at(self, theta: float) -> float:
        """Additional variance of the mean, if theta were true.

        A difference of theta may need more rows to differ than did. For one seed, the
        variance at theta follows from the likeliest shares of rows in favour of each
        mechanism, given that their difference is theta. The result is what this
        variance exceeds the observed one by.
        """
        # observed shares of rows in favour of the side of theta, and against it
        size = abs(theta)
        in_favour = self.better
        against = self.worse
        if theta < 0:
            in_favour = self.worse
            against = self.better

        # the likeliest share against solves a quadratic equation (Tango 1998)
        half = (size * (2 - in_favour + against) - in_favour - against) / 4
        share_against = (half**2 + against * size * (1 - size) / 2) ** 0.5 - half
        row_variance_at_theta = 2 * share_against + size - size**2
        observed_row_variance = in_favour + against - (in_favour - against) ** 2
        excess = max(0.0, row_variance_at_theta - observed_row_variance)
        excess *= self.clustering
        num_rows = self.effects.num_rows * self.effects.rows_per_unit
        variance: float = RULE_OF_THREE * excess / num_rows
        return variance
