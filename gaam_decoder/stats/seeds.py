"""The seeds as a sample: standard deviation, t interval, and power.

The test rows are fixed here; ``crossed`` treats them as a sample too.

S seeds.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, nctdtr, stdtrit

Floats = NDArray[np.float64]
BISECTIONS = 60  # steps of a bisection
PLATEAU_LEVEL = 0.2
"""Share of false warnings of a short training: they cost less than a missed warning."""


def require_finite(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Check that all values are finite, and give them back.

    Raises:
        ValueError: NaN or infinity, from which no statistic would mean anything.
    """
    if not np.isfinite(values).all():
        raise ValueError("statistics need finite values: NaN or infinity is among them")
    return values


def standard_deviation(value_S: Floats) -> float | None:
    """Sample standard deviation (S - 1); None for fewer than two values.

    Raises:
        ValueError: NaN or infinity.
    """
    if len(require_finite(value_S)) < 2:
        return None
    # the mean of equal values is rounded, and np.std would not be exactly 0
    if (value_S == value_S[0]).all():
        return 0.0
    return float(np.std(value_S, ddof=1))


def t_interval(value_S: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t confidence interval of the mean; None for fewer than two values.

    ``mean +- t(S - 1, (1 + level) / 2) * sd / sqrt(S)``; of width 0 for equal values.

    Raises:
        ValueError: NaN or infinity.
    """
    sd = standard_deviation(value_S)
    if sd is None:
        return None
    mean = float(np.mean(value_S))
    quantile = float(stdtrit(len(value_S) - 1, (1 + level) / 2))
    half_width = quantile * sd / len(value_S) ** 0.5
    return mean - half_width, mean + half_width


def within(
    interval: tuple[float, float] | None, least: float, most: float
) -> tuple[float, float] | None:
    """Clip an interval to the possible values: an accuracy to 0 and 1, for example."""
    if interval is None:
        return None
    low, high = (float(min(most, max(least, limit))) for limit in interval)
    return low, high


def minimum_detectable_difference(
    difference_S: Floats, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Smallest true mean difference that a paired t test over these seeds detects.

    At this difference a two-sided test at ``alpha`` rejects with probability ``power``,
    if the differences are normal with the observed standard deviation; from the
    noncentral t distribution. None for fewer than two seeds.

    Args:
        difference_S: difference of every pair; only their spread and number matter.
        alpha: level of one test, before any correction for several.
        power: probability of detection.

    Raises:
        ValueError: NaN or infinity.
    """
    sd = standard_deviation(difference_S)
    if sd is None:
        return None
    degrees_of_freedom = len(difference_S) - 1
    critical_t = float(stdtrit(degrees_of_freedom, 1 - alpha / 2))

    def power_at(true_mean: float) -> float:
        """Probability of a t above the critical one, for a mean in standard errors."""
        # The other tail is left out: from a power of 0.5 on it adds less than 1e-3, and
        # nctdtr is NaN there for some arguments.
        return 1 - float(nctdtr(degrees_of_freedom, true_mean, critical_t))

    # bisect the true mean in standard errors
    low = 0.0
    high = 1.0
    while power_at(high) < power:
        high *= 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if power_at(middle) >= power:
            high = middle
        else:
            low = middle
    detectable: float = high * sd / len(difference_S) ** 0.5
    return detectable


def seeds_needed(num_comparisons: int, *, alpha: float = 0.05) -> int:
    """Fewest seeds for p below ``alpha`` in a sign-flip test with Holm's correction.

    S seeds have ``2**S`` sign patterns, and the most extreme two give p = ``2 / 2**S``.
    Holm multiplies the smallest of m p-values by m.

    Raises:
        ValueError: no comparison.
    """
    if num_comparisons < 1:
        raise ValueError("nothing is compared")
    return math.floor(1 + math.log2(num_comparisons / alpha)) + 1


def later_than_chance(late: int, seeds: int, epochs: int, folds: int = 1) -> bool:
    """Whether a training looks too short: too many seeds have their best epoch last.

    Too many are more than chance explains on a plateau of the score, at
    ``PLATEAU_LEVEL``. On a plateau every epoch is the best with the same probability. A
    seed is then late with probability ``1 - (1 - 1 / epochs)**folds``, and the number
    of late seeds is binomial. With so few seeds or epochs that even all seeds late
    would not be too many, a single late seed makes the training look too short.

    Args:
        late: number of seeds whose best epoch is the last in some fold.
        seeds: number of finished seeds.
        epochs: number of epochs of the recipe.
        folds: number of folds of every seed.
    """
    if not late:
        return False
    p_late = 1 - (1 - 1 / epochs) ** folds
    # fewer seeds than a claim on a single comparison takes
    has_few_seeds = seeds < seeds_needed(num_comparisons=1)
    all_late_is_no_evidence = p_late**seeds >= PLATEAU_LEVEL
    if has_few_seeds or all_late_is_no_evidence:
        return True
    p_so_many_or_more = float(bdtrc(late - 1, seeds, p_late))
    return p_so_many_or_more < PLATEAU_LEVEL
