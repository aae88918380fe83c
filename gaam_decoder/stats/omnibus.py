"""Do several mechanisms differ at all, by their ranks under the same seeds, on given test rows?

S seeds that all have, K mechanisms. What other test rows would show is not asked here: that is
the smallest corrected p of all pairs, each of which is tested over seeds and rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc, gammaln, ndtr

from gaam_decoder.stats.limits import ALPHA
from gaam_decoder.stats.seeds import checked

_NODES = np.linspace(-9.0, 9.0, 2001)
"""Where the normal density is summed; with 2,001 points the quantile has ten digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Friedman:
    """Friedman's test with the correction of Iman and Davenport."""

    mean_ranks: tuple[float, ...]
    """1 is the most accurate; ties share their ranks."""
    num_seeds: int
    chi_squared: float
    """Corrected for ties; 0 where all are tied."""
    p_chi_squared: float
    f: float
    """Infinite where all seeds agree."""
    p: float
    """Of ``f``, and never below what all permutations can give."""
    critical_difference: float
    """Of two mean ranks, by Nemenyi at 5%."""

    def alike(self) -> list[tuple[int, ...]]:
        """Largest groups whose mean ranks are within the critical difference, best first."""
        order = sorted(range(len(self.mean_ranks)), key=lambda place: self.mean_ranks[place])
        groups: list[tuple[int, ...]] = []
        for start, first in enumerate(order):
            limit = self.mean_ranks[first] + self.critical_difference
            group = tuple(place for place in order[start:] if self.mean_ranks[place] <= limit)
            if len(group) > 1 and not (groups and group[-1] == groups[-1][-1]):
                groups.append(group)
        return groups


def friedman(accuracy_SK: NDArray[np.float64]) -> Friedman:
    """Test whether K mechanisms have the same distribution of ranks under every seed.

    Args:
        accuracy_SK: (S, K), two seeds and three mechanisms at least.

    Raises:
        ValueError: fewer of either, NaN or infinity.

    Source: Friedman 1937; Iman and Davenport 1980, "Approximations of the critical region of the
        Friedman statistic"; Demsar 2006, "Statistical comparisons of classifiers over multiple
        data sets", where data sets are blocks, as seeds are here.
    """
    num_seeds, num_ways = accuracy_SK.shape
    if num_seeds < 2 or num_ways < 3:
        raise ValueError("two seeds and three mechanisms are the least")
    checked(accuracy_SK)
    rank_SK = ranks(accuracy_SK)
    mean_K = rank_SK.mean(0)
    middle = (num_ways + 1) / 2
    within = float(((rank_SK - middle) ** 2).sum()) / (num_seeds * (num_ways - 1))
    between = float(((mean_K - middle) ** 2).sum())
    chi = num_seeds * between / within if within else 0.0
    rest = num_seeds * (num_ways - 1) - chi
    agree = rest <= 1e-9 * num_seeds * num_ways
    f = float("inf") if agree else (num_seeds - 1) * chi / rest
    df = num_ways - 1
    p = 0.0 if agree else float(fdtrc(df, df * (num_seeds - 1), f))
    # of all ways to permute the ranks of all seeds but one, one gives what was seen
    least = float(np.exp(-(num_seeds - 1) * gammaln(num_ways + 1)))
    return Friedman(
        mean_ranks=tuple(mean_K.tolist()),
        num_seeds=num_seeds,
        chi_squared=chi,
        p_chi_squared=float(chdtrc(df, chi)),
        f=f,
        p=min(1.0, max(p, least)),
        critical_difference=critical_difference(num_ways, num_seeds),
    )


def ranks(accuracy_SK: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of every row, 1 for the largest, the mean of their places for ties; (S, K)."""
    one, other = accuracy_SK[:, :, None], accuracy_SK[:, None, :]
    # accuracies of the same rows differ by 1/N or not at all; less is rounding
    above = (other > one + 1e-12).sum(-1)
    tied = (np.abs(other - one) <= 1e-12).sum(-1)
    found: NDArray[np.float64] = above + (tied + 1) / 2
    return found


def critical_difference(num_ways: int, num_seeds: int, alpha: float = ALPHA) -> float:
    """How far apart two mean ranks of K mechanisms have to be, by Nemenyi's test.

    ``q(alpha, K) / sqrt(2) * sqrt(K (K + 1) / (6 S))``

    Source: Nemenyi 1963; Demsar 2006, section 3.2.2.
    """
    spread = (num_ways * (num_ways + 1) / (6 * num_seeds)) ** 0.5
    return _range_quantile(1 - alpha, num_ways) / 2**0.5 * spread


def _range_quantile(level: float, count: int) -> float:
    """Of the range of so many independent standard normal values."""
    density = np.exp(-(_NODES**2) / 2) / (2 * np.pi) ** 0.5
    step, below = _NODES[1] - _NODES[0], ndtr(_NODES)
    low, high = 0.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = (below - ndtr(_NODES - middle)) ** (count - 1)
        less = count * step * float(density @ inside) < level
        low, high = (middle, high) if less else (low, middle)
    return high
