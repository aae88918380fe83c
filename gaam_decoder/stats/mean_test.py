"""Tests of a mean difference over S seeds and N test rows, and their intervals.

Theta is a hypothetical true difference, which a test compares with the observed one.

An interval holds all differences that a test does not reject. ``MeanTest`` serves the
mean of any score. ``HitsTest`` serves rows that are right or wrong, and counts unseen
rows: rare rows that the sample may lack.

A unit is a row, or a group of rows that belong together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from scipy.special import gammaincc, ndtr, ndtri

from gaam_decoder.stats.crossed import BISECTIONS, Crossed

ALPHA = 0.05
RULE_OF_THREE = 1.107
"""Factor of the variance from unseen rows of right and wrong answers. With it, the
one-sided 95% limit of an event without cases in N rows is the exact one,
``-ln(0.05) / N``."""
LEAST_DIFFERING_ROWS = 2
"""In a mean over data sets, at least so many test rows of each count as different."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanTest:
    """Tests of a mean difference over seeds and units, and its confidence interval.

    A unit is a test row, or a group of test rows that belong together. An unseen row is
    a row of a rare kind that the test rows lack.

    Theta is a hypothetical true difference, which a test compares with the observed
    one.
    """

    anova: Crossed
    """Analysis of variance of the differences: their mean and mean squares."""
    variance_from_unseen_rows: float = 0.0
    """Variance of the mean from rare rows that the test rows may lack."""
    largest_difference: float = 1.0  # that is possible

    @property
    def variance(self) -> float:
        """Variance of the mean, with that from rows that the test rows may lack."""
        return self.anova.variance + self.variance_from_unseen_rows

    def variance_over_sets(self, margin: float) -> float:
        """Variance of the mean, for a mean of it over several data sets.

        Test rows that hardly differ may lack the rows on which the mechanisms do. So
        the variance is at least that of a true difference as large as the margin, and
        as large as two of the test rows.

        Args:
            margin: largest difference that does not matter.
        """
        num_rows = self.anova.num_units * self.anova.rows_per_unit
        theta = max(margin, LEAST_DIFFERING_ROWS / num_rows)
        from_unseen_rows = max(
            self._variance_from_unseen_rows_at(theta),
            self._variance_from_unseen_rows_at(-theta),
        )
        return self.anova.variance + from_unseen_rows

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        p_of_t = 2 * self._one_sided_p(theta=0.0, distance=abs(self.anova.mean))
        return min(1.0, max(p_of_t, self.p_of_other_tests))

    @property
    def p_of_other_tests(self) -> float:
        """The largest p of tests that must also be significant; 0 without any."""
        return 0.0

    def p_equivalent(self, margin: float) -> float:
        """The larger p of two one-sided tests.

        One tests whether the mean is below the margin, the other whether it is above
        the negative margin.
        """
        p_below = self._one_sided_p(theta=margin, distance=margin - self.anova.mean)
        p_above = self._one_sided_p(theta=-margin, distance=margin + self.anova.mean)
        return max(p_below, p_above)

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject."""
        # the distance is the same for every theta
        half_width = self._critical_distance(theta=0.0, one_sided_level=level / 2)
        low = self.anova.mean - half_width
        high = self.anova.mean + half_width
        return max(low, -self.largest_difference), min(high, self.largest_difference)

    def would_decide(self, margin: float, level: float = ALPHA) -> bool:
        """Whether at least half of all experiments like this one would give a verdict.

        A verdict is a difference, or equivalence. The mean differences of the
        experiments vary around the observed one, with its variance.

        Args:
            margin: largest difference that does not matter.
            level: significance level of each test.
        """
        size = abs(self.anova.mean)
        significant_size = self._critical_distance(theta=0.0, one_sided_level=level / 2)
        if self.p_of_other_tests < level and size > significant_size:
            return True

        # a mean this close to 0 is equivalent: both one-sided tests reject the margin
        largest_equivalent_mean = margin - max(
            self._critical_distance(theta=margin, one_sided_level=level),
            self._critical_distance(theta=-margin, one_sided_level=level),
        )
        std_error = self.anova.variance**0.5
        if std_error == 0:
            return largest_equivalent_mean > size
        share_below_lower_end = ndtr((-largest_equivalent_mean - size) / std_error)
        share_below_upper_end = ndtr((largest_equivalent_mean - size) / std_error)
        return bool(share_below_upper_end - share_below_lower_end > 0.5)

    def resized(self, num_seeds: int, num_units: int) -> Self:
        """The test to expect of so many seeds and units of the same kinds.

        A unit is a row, or a group of rows that belong together.
        """
        # among k times as many rows, an unseen row changes the mean by 1 / k as much,
        # so the variance falls with the square
        shrinkage = self.anova.num_units / num_units
        return replace(
            self,
            anova=self.anova.resized(num_seeds, num_units),
            variance_from_unseen_rows=self.variance_from_unseen_rows * shrinkage**2,
        )

    def _one_sided_p(self, *, theta: float, distance: float) -> float:
        """One-sided p of a mean at this distance from theta.

        The distance is below 0 where the mean contradicts the alternative.
        """
        unseen = self._variance_from_unseen_rows_at(theta)
        return self.anova.one_sided_p(distance, unseen)

    def _critical_distance(self, *, theta: float, one_sided_level: float) -> float:
        """The distance of a mean from theta at which a one-sided test rejects theta."""
        unseen = self._variance_from_unseen_rows_at(theta)
        return self.anova.critical_distance(one_sided_level, unseen)

    def _variance_from_unseen_rows_at(self, theta: float) -> float:  # noqa: ARG002
        """Variance of the mean from rows that the test rows lack, if theta is true.

        Here it is the same for every theta; a subclass may let it depend on theta.
        """
        return self.variance_from_unseen_rows


class Lead(NamedTuple):
    """By how many rows one mechanism is ahead on a unit, as a mean over the seeds.

    It is 0 for units on which the other mechanism is ahead.
    """

    mean: float  # over all units
    mean_square: float  # over all units


@dataclass(frozen=True, kw_only=True, slots=True)
class HitsTest(MeanTest):
    """Tests of a mean difference if every row is right or wrong."""

    share_better: float
    """Sum of the positive differences of rows, divided by N. The difference of a row is
    a mean over the seeds."""
    share_worse: float
    """Sum of the sizes of the negative differences of rows, divided by N."""
    lead_of_mechanism: Lead
    lead_of_baseline: Lead
    p_exact: float
    """Of the exact sign-flip test over units; 0 if that test was not made."""
    design_effect: float = 1.0
    """Variance of group totals, as a multiple of that for independent rows."""

    @property
    def p_of_other_tests(self) -> float:
        """Larger p of the exact test over units and the Poisson test of rare units."""
        return max(self.p_exact, self._p_of_rare_units())

    def _p_of_rare_units(self) -> float:
        """Two-sided p of a Poisson test whether the leads of both mechanisms are equal.

        It guards against rare units that the test rows lack: a few units with a large
        lead may outweigh many with a small one. A lead counts as so many units of one
        size. p is the probability that the smaller number of units is at most the
        observed one, if as many are expected as the larger lead has.
        """
        num_units = self.anova.num_units
        smaller, larger = sorted([self.lead_of_mechanism, self.lead_of_baseline])

        # Mean size of the smaller lead's units, weighted by size. One row with a lead
        # of 1 is added: without any unit the size would be unknown.
        sum_of_leads = smaller.mean * num_units
        sum_of_squares = smaller.mean_square * num_units
        unit_size = (sum_of_squares + 1) / (sum_of_leads + 1)

        observed = sum_of_leads / unit_size
        expected = larger.mean * num_units / unit_size
        # gammaincc(k + 1, m) is the probability of at most k for a Poisson mean m
        return min(1.0, 2 * float(gammaincc(observed + 1, expected)))

    def resized(self, num_seeds: int, num_units: int) -> Self:
        """The test to expect of so many seeds and units of the same kinds.

        A unit is a row, or a group of rows that belong together.
        """
        # the normal quantile of p grows with the square root of the number of units
        growth = (num_units / self.anova.num_units) ** 0.5
        return replace(
            self,
            anova=self.anova.resized(num_seeds, num_units),
            p_exact=2 * float(ndtr(ndtri(self.p_exact / 2) * growth)),
        )

    def interval(self, level: float = ALPHA) -> tuple[float, float]:
        """All differences that a two-sided test at this level does not reject.

        The t test gives the ends. 0 is inside exactly if ``p`` is not below the
        level, even if ``p`` is that of another test.
        """
        if self.p >= level:
            low = self._furthest_accepted(level, search_end=-1.0)
            high = self._furthest_accepted(level, search_end=1.0)
            return min(low, 0.0), max(high, 0.0)
        # both limits are on the side of the mean
        if self.anova.mean > 0:
            low = self._furthest_accepted(level, search_end=0.0)
            high = self._furthest_accepted(level, search_end=1.0)
        else:
            low = self._furthest_accepted(level, search_end=-1.0)
            high = self._furthest_accepted(level, search_end=0.0)
        return low, high

    def _furthest_accepted(self, level: float, *, search_end: float) -> float:
        """The theta furthest from the mean that the two-sided t test does not reject.

        Args:
            level: significance level of the test.
            search_end: a theta; the search goes from the mean to it.
        """
        accepted = self.anova.mean
        rejected = search_end
        for _ in range(BISECTIONS):
            theta = (accepted + rejected) / 2
            distance = abs(theta - self.anova.mean)
            if distance < self._critical_distance(
                theta=theta, one_sided_level=level / 2
            ):
                accepted = theta
            else:
                rejected = theta
        return (accepted + rejected) / 2

    def _variance_from_unseen_rows_at(self, theta: float) -> float:
        """Variance of the mean from rows that the test rows lack, if theta is true.

        If theta is large, more rows differ in truth than did in the test. The likeliest
        shares of rows in favour of each mechanism, whose difference is theta, give the
        variance of a row. Its excess over the observed variance of a row stands for the
        rows that the test lacks.
        """
        size = abs(theta)
        # observed shares of rows in favour of the mechanism that theta favours
        in_favour = self.share_better
        against = self.share_worse
        if theta < 0:
            in_favour = self.share_worse
            against = self.share_better

        # The likeliest share q of rows against it (Tango 1998) solves
        # 2 q^2 + (size (2 - in_favour + against) - in_favour - against) q
        #     = against size (1 - size).
        linear = size * (2 - in_favour + against) - in_favour - against
        constant = against * size * (1 - size)
        share_against = ((linear / 4) ** 2 + constant / 2) ** 0.5 - linear / 4

        # a row differs with the probability 2 q + size
        row_variance_at_theta = 2 * share_against + size - size**2
        observed_row_variance = in_favour + against - (in_favour - against) ** 2
        excess = max(0.0, row_variance_at_theta - observed_row_variance)
        # rows of one group vary together
        excess *= self.design_effect
        num_rows = self.anova.num_units * self.anova.rows_per_unit
        variance_of_mean: float = RULE_OF_THREE * excess / num_rows
        return variance_of_mean
