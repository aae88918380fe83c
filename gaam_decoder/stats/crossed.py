"""Seeds and test rows as two samples: the variance of a mean over both.

Every seed is tested on every row. A value has an effect of its seed, an effect of its
row, and a residual: two crossed random factors, like readers and cases in studies of
diagnostic tests. The variance of the mean follows from the three mean squares in closed
form. Nothing is resampled, so the result is deterministic. If rows belong together,
their group takes the place of a row, see ``groups``.

S seeds, N test rows, G groups of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from gaam_decoder.stats.groups import RowGroups
from gaam_decoder.stats.seeds import require_finite

SMALLEST = 1e-100  # the smallest p that a bisection finds
BISECTIONS = 50  # steps of a bisection
ROUNDING = 1e-12  # share of a sum of squares that only rounding makes
Values = NDArray[np.bool_] | NDArray[np.integer] | NDArray[np.floating]


@lru_cache(maxsize=10_000)
def _t_quantile(freedom: float, tail: float) -> float:
    """The quantile of Student's t; searches ask for the same again and again."""
    return float(stdtrit(freedom, tail))


class _VarianceParts(NamedTuple):
    """Parts of the variance of a mean, each with degrees of freedom of its own."""

    from_seeds: float
    from_rows: float  # from test rows, or groups of them
    from_training_and_tuning: float


class Crossed(NamedTuple):
    """Mean and mean squares of values with crossed seeds and rows.

    ``ms_seeds``, ``ms_rows`` and ``ms_rest`` are mean squares. They have the
    expectations ``N var_seeds + var_rest``, ``S var_rows + var_rest`` and ``var_rest``.
    A unit is a row, or a group of rows. If groups are the unit, they take the place of
    rows: N counts groups, and ``ms_rows`` is their mean square.
    """

    mean: float
    ms_seeds: float
    ms_rows: float
    ms_rest: float
    num_seeds: int
    num_units: int  # N: number of rows, or of groups if they are the unit
    tuning_variance: float = 0.0  # part of the mean's variance from tuning
    train_rows: float = math.inf  # number of training rows
    rows_per_unit: float = 1.0  # mean over the units
    freedom_of_groups: float | None = None
    """Degrees of freedom of ``ms_rows`` if groups are the unit; None: rows are."""

    @property
    def freedom_of_units(self) -> float:
        """Degrees of freedom of the part of the variance from rows, or groups."""
        if self.freedom_of_groups is None:
            return self.num_units - 1
        return self.freedom_of_groups

    @property
    def variance_from_seeds(self) -> float:
        """Part of the mean's variance from S seeds; 0 for one seed."""
        if self.num_seeds < 2:
            return 0.0
        # Its expectation is never below that of the rest, but by chance it may be. With
        # two seeds, a mean square near zero would make any difference significant.
        mean_square = max(self.ms_seeds, self.ms_rest)
        return mean_square / (self.num_seeds * self.num_units)

    @property
    def variance_from_rows(self) -> float:
        """Part of the mean's variance from the N rows, or groups, of the test."""
        return max(self.ms_rows - self.ms_rest, 0.0) / (self.num_seeds * self.num_units)

    @property
    def variance_from_training(self) -> float:
        """Part of the mean's variance from the sample of training rows.

        It is 0 unless there are more test rows than training rows. Then it is so large
        that ``variance_from_rows + variance_from_training`` is the variance from as
        many test rows as training rows.

        Source: the order of size: Nadeau and Bengio 2003, "Inference for the
            generalization error".
        """
        num_test_rows = self.num_units * self.rows_per_unit
        test_per_training = num_test_rows / self.train_rows
        return self.variance_from_rows * max(0.0, test_per_training - 1)

    @property
    def variance(self) -> float:
        """Variance of the mean over seeds, test rows, training rows and tuning."""
        return (
            self.variance_from_seeds
            + self.variance_from_rows
            + (self.tuning_variance + self.variance_from_training)
        )

    def critical_distance(
        self, p: float, variance_from_unseen_rows: float = 0.0
    ) -> float:
        """The distance of the mean from a hypothesis at which the one-sided p is ``p``.

        It is half the width of the confidence interval of level ``1 - 2 p``.

        Args:
            p: above 0, at most 0.5.
            variance_from_unseen_rows: additional variance of the mean, for rare rows
                that the test rows lack.

        Source: Banerjee 1960, "Approximate confidence interval for linear functions of
            means of k populations": each part of the variance has the t quantile of its
            own degrees of freedom. With normal effects this interval is never too
            narrow. One number of degrees of freedom for both parts (Satterthwaite)
            loses up to 14 points of coverage with two to five seeds.
        """
        parts = self._variance_parts(variance_from_unseen_rows)
        return self._distance_from_parts(p, parts)

    def _variance_parts(self, variance_from_unseen_rows: float) -> _VarianceParts:
        """The variance of the mean in parts, with that of rows that the test lacks."""
        return _VarianceParts(
            from_seeds=self.variance_from_seeds,
            from_rows=self.variance_from_rows + variance_from_unseen_rows,
            from_training_and_tuning=self.tuning_variance + self.variance_from_training,
        )

    def _distance_from_parts(self, p: float, parts: _VarianceParts) -> float:
        """The distance from a hypothesis at which the mean has this one-sided p.

        It is ``critical_distance``, from parts of the variance that a search over p
        computes once. Each part is multiplied by the square of its own quantile: the
        units of the part of rows are test rows, or groups of them.
        """
        t_of_seeds = _t_quantile(max(self.num_seeds - 1, 1), p)
        t_of_rows = _t_quantile(self.freedom_of_units, p)
        # training and tuning: a variance without known degrees of freedom
        normal_quantile = float(ndtri(p))
        seeds = t_of_seeds**2 * parts.from_seeds
        rows = t_of_rows**2 * parts.from_rows
        training = normal_quantile**2 * parts.from_training_and_tuning
        return math.sqrt(seeds + rows + training)

    def one_sided_p(
        self, distance: float, variance_from_unseen_rows: float = 0.0
    ) -> float:
        """The one-sided p of a mean at this distance from a hypothesis.

        It is the p for which ``critical_distance`` returns this distance.

        Args:
            distance: below 0 where the mean contradicts the alternative; p is then
                above 0.5.
            variance_from_unseen_rows: additional variance of the mean, for rare rows
                that the test rows lack.
        """
        if distance < 0:
            return 1 - self.one_sided_p(-distance, variance_from_unseen_rows)
        if distance == 0:
            return 0.5
        parts = self._variance_parts(variance_from_unseen_rows)
        # the critical distance falls as p grows: bisect the logarithm of p
        low = math.log(SMALLEST)
        high = math.log(0.5)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if self._distance_from_parts(math.exp(middle), parts) < distance:
                high = middle
            else:
                low = middle
        return math.exp(high)

    def resized(self, num_seeds: int, num_units: int) -> Crossed:
        """The mean squares to expect from so many seeds and units of the same kinds."""
        variance_of_seeds = max(self.ms_seeds - self.ms_rest, 0.0) / self.num_units
        variance_of_rows = max(self.ms_rows - self.ms_rest, 0.0) / self.num_seeds

        # degrees of freedom of groups of the same sizes grow with their number
        freedom = self.freedom_of_groups
        if freedom is not None:
            freedom = max(1.0, (freedom + 1) * num_units / self.num_units - 1)
        return self._replace(
            ms_seeds=num_units * variance_of_seeds + self.ms_rest,
            ms_rows=num_seeds * variance_of_rows + self.ms_rest,
            num_seeds=num_seeds,
            num_units=num_units,
            freedom_of_groups=freedom,
        )


def crossed(value_SN: Values, groups: RowGroups | None = None) -> Crossed:
    """Analysis of variance of values of S seeds on N rows.

    Args:
        value_SN: (S, N).
        groups: rows that belong together; None: every row is a unit.

    Raises:
        ValueError: no seed, fewer than two rows, NaN or infinity.

    Source: variance of a mean of crossed readers and cases: Dorfman, Berbaum and Metz
        1992, "Receiver operating characteristic rating analysis"; Gallas 2006,
        "One-shot estimate of MRMC variance"; truncation at zero: Hillis 2007, "A
        comparison of denominator degrees of freedom methods for multiple observer ROC
        analysis".
    """
    num_seeds, num_rows = value_SN.shape
    if num_seeds < 1 or num_rows < 2:
        raise ValueError("an analysis of variance needs a seed or more, and two rows")
    if groups is not None:
        return _crossed_groups(value_SN, groups)
    value_S = require_finite(value_SN.mean(1, dtype=np.float64))
    value_N = value_SN.mean(0, dtype=np.float64)
    mean = float(value_S.mean())

    # Sums of squares. The rest, by which a seed is better on some rows than on others,
    # is what the mean, the seeds and the rows leave of all squares.
    all_squares = float(np.einsum("sn,sn->", value_SN, value_SN, dtype=np.float64))
    squares_of_mean = num_seeds * num_rows * mean**2
    squares_of_seeds = num_rows * float(np.sum((value_S - mean) ** 2))
    squares_of_rows = num_seeds * float(np.sum((value_N - mean) ** 2))
    squares_of_rest = max(
        all_squares - squares_of_mean - squares_of_seeds - squares_of_rows, 0.0
    )
    # if the rest is only rounding error, it is 0
    if squares_of_rest < ROUNDING * all_squares:
        squares_of_rest = 0.0
    return Crossed(
        mean=mean,
        ms_seeds=squares_of_seeds / max(num_seeds - 1, 1),
        ms_rows=squares_of_rows / (num_rows - 1),
        ms_rest=squares_of_rest / (max(num_seeds - 1, 1) * (num_rows - 1)),
        num_seeds=num_seeds,
        num_units=num_rows,
    )


def _crossed_groups(value_SN: Values, groups: RowGroups) -> Crossed:
    """Analysis of variance of S seeds and G groups of rows, of any sizes.

    The groups take the place of the rows in the result::

        mean square of seeds   G sum_s (mean_s - mean)^2 / (S - 1)
        mean square of groups  S G sum_g c_g mean_s(q_sg)^2
        mean square of rest    G sum_sg c_g (q_sg - mean_s(q_sg))^2 / (S - 1)

    ``q_sg`` is by how much group g raises the mean of seed s
    (``RowGroups.effects_on_mean``). ``c_g`` is the factor that makes the squares an
    unbiased variance (``RowGroups.variance_factor_G``); for groups of equal size it is
    ``G / (G - 1)``, and the result is the analysis of variance of the means of groups.

    Raises:
        ValueError: one group, or NaN or infinity.
    """
    num_seeds = len(value_SN)
    num_groups = len(groups)
    if num_groups < 2:
        raise ValueError("an analysis of variance over groups needs two groups")
    value_S = require_finite(value_SN.mean(1, dtype=np.float64))
    mean = float(value_S.mean())

    effect_SG = groups.effects_on_mean(value_SN)
    mean_effect_G = effect_SG.mean(0)
    factor_G = groups.variance_factor_G
    squares_of_seeds = num_groups * float(np.sum((value_S - mean) ** 2))
    squares_of_groups = float(np.sum(factor_G * mean_effect_G**2))
    squares_of_rest = float(np.sum(factor_G * (effect_SG - mean_effect_G) ** 2))
    # if the rest is only rounding error, it is 0
    if squares_of_rest < ROUNDING * (squares_of_groups + squares_of_rest):
        squares_of_rest = 0.0
    return Crossed(
        mean=mean,
        ms_seeds=squares_of_seeds / max(num_seeds - 1, 1),
        ms_rows=num_seeds * num_groups * squares_of_groups,
        ms_rest=num_groups * squares_of_rest / max(num_seeds - 1, 1),
        num_seeds=num_seeds,
        num_units=num_groups,
        rows_per_unit=value_SN.shape[1] / num_groups,
        freedom_of_groups=groups.degrees_of_freedom,
    )


def with_training_variance(
    interval: tuple[float, float], anova: Crossed, p: float
) -> tuple[float, float]:
    """An interval over seeds and rows, widened by the variance of tuning and training.

    The squared distances of an end from the mean are added.

    Args:
        interval: of the mean of ``anova``, without these variances.
        anova: has them.
        p: one-sided level of the interval.

    Source: Zou and Donner 2008, "Construction of confidence limits about effect
        measures: a general approach".
    """
    variance = anova.tuning_variance + anova.variance_from_training
    distance = abs(float(ndtri(p))) * math.sqrt(variance)
    low, high = interval
    return (
        anova.mean - math.hypot(anova.mean - low, distance),
        anova.mean + math.hypot(high - anova.mean, distance),
    )


def two_level_interval(
    right_SN: Values,
    *,
    level: float = 0.95,
    without_seeds: bool = False,
    groups: RowGroups | None = None,
    tuning_variance: float = 0.0,
    train_rows: float = math.inf,
) -> tuple[float, float] | None:
    """Interval of an accuracy over seeds and test rows.

    None for fewer than two of either. It is Wilson's score interval with Student's t
    quantiles, for the effective number of rows: as many independent rows as give a mean
    of the same variance, at most N. Both limits are from 0 to 1.

    In simulated experiments it covers the accuracy in at least 95 of 100 cases. If a
    few seeds are much worse than the others, it covers about 90, since a sample of
    seeds may have none of them.

    Args:
        right_SN: whether each seed is right on each row, or in what share of several
            tests.
        level: of confidence.
        without_seeds: for a decoder without a seed: only the rows vary.
        groups: rows that belong together, as units; no interval for fewer than two.
        tuning_variance: variance of the accuracy from tuning on validation rows.
        train_rows: number of training rows; where there are more test rows, the
            variance is that of as many test rows as training rows.

    Source: Wilson 1927; the effective number of rows: Korn and Graubard 1998,
        "Confidence intervals for proportions with small expected number of positive
        counts estimated from survey data".
    """
    num_seeds, num_rows = right_SN.shape
    fewest_seeds = 1 if without_seeds else 2
    if num_rows < 2 or num_seeds < fewest_seeds:
        return None
    if groups is not None and len(groups) < 2:
        return None
    anova = crossed(right_SN, groups)
    accuracy = anova.mean
    tail_probability = 1 - (1 + level) / 2

    # At most N rows: a small sample may lack the rows that vary most. Rows of groups
    # are fewer independent rows, even where the sample does not show it.
    variance_of_one_row = accuracy * (1 - accuracy)
    effective_rows: float = num_rows
    if groups is not None:
        effective_rows = num_rows / groups.least_design_effect
    if anova.variance > 0 and variance_of_one_row:
        effective_rows = min(effective_rows, variance_of_one_row / anova.variance)

    # half the width of an interval of the mean, in standard errors
    if anova.variance > 0:
        half_width_of_mean = anova.critical_distance(tail_probability)
        quantile = half_width_of_mean / math.sqrt(anova.variance)
    else:
        # where nothing varies, only the rows have known degrees of freedom
        quantile = -float(stdtrit(anova.freedom_of_units, tail_probability))

    interval = _wilson_interval(accuracy, effective_rows, quantile)
    anova = anova._replace(tuning_variance=tuning_variance, train_rows=train_rows)
    low, high = with_training_variance(interval, anova, tail_probability)
    return max(0.0, low), min(1.0, high)


def _wilson_interval(
    accuracy: float, num_rows: float, quantile: float
) -> tuple[float, float]:
    """Wilson's score interval of an accuracy.

    Args:
        accuracy: of the rows.
        num_rows: number of independent rows.
        quantile: half the width of an interval of a normal mean, in standard errors.
    """
    shrinkage = quantile**2 / num_rows
    middle = (accuracy + shrinkage / 2) / (1 + shrinkage)
    variance = accuracy * (1 - accuracy) / num_rows + shrinkage / (4 * num_rows)
    half_width = quantile / (1 + shrinkage) * math.sqrt(variance)
    return middle - half_width, middle + half_width
