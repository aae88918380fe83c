"""The seeds as a sample: spread, interval, and what so many seeds can show.

S seeds. The test rows are taken as given here; ``crossed`` treats them as a sample too.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, nctdtr, stdtrit

Floats = NDArray[np.float64]
OF_A_PLATEAU = 0.2
"""Share of plateaus that may be called under-trained: a warning too many is the cheaper mistake."""


def checked(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The values, all of which are numbers.

    Raises:
        ValueError: NaN or infinity is among them; what follows from it would be nonsense.
    """
    if not np.isfinite(values).all():
        raise ValueError(
            "statistics are of finite values: NaN or infinity is among them"
        )
    return values


def standard_deviation(value_S: Floats) -> float | None:
    """Sample standard deviation (S - 1); None for fewer than two values, 0 where all are equal.

    Raises:
        ValueError: NaN or infinity.
    """
    if len(checked(value_S)) < 2:
        return None
    if (value_S == value_S[0]).all():
        return 0.0  # a mean that is rounded is none of the values
    return float(np.std(value_S, ddof=1))


def t_interval(value_S: Floats, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t confidence interval of the mean; None for fewer than two values.

    ``mean +- t(S - 1, (1 + level) / 2) * sd / sqrt(S)``; without width where all are equal.

    Raises:
        ValueError: NaN or infinity.
    """
    sd = standard_deviation(value_S)
    if sd is None:
        return None
    mean = float(np.mean(value_S))
    half = float(stdtrit(len(value_S) - 1, (1 + level) / 2)) * sd / len(value_S) ** 0.5
    return mean - half, mean + half


def within(
    interval: tuple[float, float] | None, least: float, most: float
) -> tuple[float, float] | None:
    """What of an interval can be: of an accuracy 0 to 1, of a difference of two -1 to 1."""
    if interval is None:
        return None
    low, high = (float(min(most, max(least, limit))) for limit in interval)
    return low, high


def minimum_detectable_difference(
    difference_S: Floats, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Smallest true mean difference that a paired t test over so many seeds would mostly find.

    The delta at which a two-sided test at ``alpha`` rejects with probability ``power``, if the
    differences are normal with the standard deviation that was seen; from the noncentral t
    distribution. None for fewer than two seeds.

    Args:
        difference_S: difference of every pair; only its spread and number matter.
        alpha: level of one test, before any correction for several.
        power: chance of finding it.

    Raises:
        ValueError: NaN or infinity.
    """
    sd = standard_deviation(difference_S)
    if sd is None:
        return None
    df = len(difference_S) - 1
    critical = float(stdtrit(df, 1 - alpha / 2))

    def found(shift: float) -> float:
        # without the other tail: at a power of one half its share is below 1e-3, and nctdtr is
        # NaN there for some arguments
        return 1 - float(nctdtr(df, shift, critical))

    low, high = 0.0, 1.0
    while found(high) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= power else (middle, high)
    return high * sd / len(difference_S) ** 0.5


def seeds_needed(num_comparisons: int, *, alpha: float = 0.05) -> int:
    """Fewest seeds with which a sign-flip test can reach ``alpha`` after Holm's correction.

    S seeds have ``2**S`` sign patterns, and the most extreme two give p = ``2 / 2**S``; Holm
    multiplies the smallest of m p-values by m.

    Raises:
        ValueError: no comparison.
    """
    if num_comparisons < 1:
        raise ValueError("nothing is compared")
    return math.floor(1 + math.log2(num_comparisons / alpha)) + 1


def later_than_chance(late: int, seeds: int, epochs: int, folds: int = 1) -> bool:
    """Whether more seeds have their best epoch last than a plateau gives.

    Where nothing more is learned every epoch is the best with the same chance, so that the last is
    in ``1 - (1 - 1 / epochs)**folds`` of all seeds; the number of late ones is then binomial. With
    few seeds, or so few epochs that all seeds would be late by chance, one is enough: nothing
    speaks for a plateau.

    Args:
        late: seeds whose best epoch is the last, in some fold at least.
        seeds: that finished.
        epochs: of the recipe.
        folds: that every seed was trained in.
    """
    chance = 1 - (1 - 1 / epochs) ** folds
    if not late or seeds < seeds_needed(1) or chance**seeds >= OF_A_PLATEAU:
        return late > 0
    return float(bdtrc(late - 1, seeds, chance)) < OF_A_PLATEAU
