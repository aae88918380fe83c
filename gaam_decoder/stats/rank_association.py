"""Does one quantity of a few layers rank them as another does?

S seeds, L layers.

Two questions, two answers. What is the rank correlation of the true values of these L layers, which
seeds and test rows show with noise? ``bounds`` of the order that is left open says. Is it more than
chance, if layers are as good as any others? ``permutation`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from scipy.stats import rankdata

from gaam_decoder.stats.paired import DRAWS, holm
from gaam_decoder.stats.seeds import checked

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]
LEAST_LAYERS = 4
"""Three layers have six orders: every correlation is as good as chance."""
EXACT_LAYERS = 8
"""40,320 orders; of more layers, orders are drawn."""
MOST_ENUMERATED = 7
"""Layers of which every order is held against every other, 25 million pairs in 0.2 s."""


class Permutation(NamedTuple):
    """Two-sided p of a rank correlation and how it was found."""

    p: float
    exact: bool
    """False: estimated from ``DRAWS`` random orders."""


def spearman(one_L: Floats, other_L: Floats) -> float | None:
    """Rank correlation, ties with the mean of their ranks; None where one of both is constant.

    Raises:
        ValueError: NaN or infinity.

    Source: Spearman 1904.
    """
    one, other = _centred(one_L), _centred(other_L)
    size = float(one @ one) * float(other @ other)
    return float(np.clip(one @ other / size**0.5, -1, 1)) if size else None


def permutation(one_L: Floats, other_L: Floats) -> Permutation:
    """Share of all orders of the layers whose rank correlation is as far from 0.

    Exact if the values of one belong to the layers in any order alike, whatever noise is in them.
    It is not where neighbours are alike in both: see ``reports.sections.importance``. Above 8
    layers ``(1 + hits) / (1 + draws)`` over 100,000 random orders, from a fixed random state.

    Raises:
        ValueError: NaN or infinity.
    """
    one, other = _centred(one_L), _centred(other_L)
    # sums of the same ranks in another order are equal; half ranks are exact
    least = abs(float(one @ other)) - 1e-9
    count = len(one)
    if count <= EXACT_LAYERS:
        sum_P = other[_orders(count)] @ one
        return Permutation(float(np.mean(np.abs(sum_P) >= least)), exact=True)
    generator = np.random.default_rng(0)
    hits, step = 0, 10_000
    for _ in range(DRAWS // step):
        order_RL = generator.permuted(np.broadcast_to(other, (step, count)), axis=1)
        hits += int(np.sum(np.abs(order_RL @ one) >= least))
    return Permutation((1 + hits) / (1 + DRAWS), exact=False)


def p_of_pairs(value_SL: Floats) -> Floats:
    """Two-sided p of every two layers having the same mean, paired by seed; (L, L), 1 on itself.

    Where all seeds differ by the same, they are so many signs: ``2 / 2**S``.

    Raises:
        ValueError: fewer than two seeds, NaN or infinity.
    """
    num_seeds, count = checked(value_SL).shape
    if num_seeds < 2:
        raise ValueError("two seeds are the least")
    difference_SLL = value_SL[:, :, None] - value_SL[:, None, :]
    mean_LL = difference_SLL.mean(0)
    error_LL = difference_SLL.std(0, ddof=1) / num_seeds**0.5
    alike_LL = np.abs(mean_LL) <= 1e-12
    same_LL = error_LL <= 1e-12
    t_LL = np.abs(mean_LL) / np.where(same_LL, 1.0, error_LL)
    p_LL = np.where(same_LL, 2.0 ** (1 - num_seeds), 2 * stdtr(num_seeds - 1, -t_LL))
    found: Floats = np.where(alike_LL | np.eye(count, dtype=bool), 1.0, p_LL)
    return found


def orders_of(
    means: Sequence[Floats], p_pairs: Sequence[Floats], level: float
) -> tuple[Signs, Signs]:
    """Which of two layers has the larger true value, of two quantities; 0 is left open.

    The signs of the means, where Holm's p, of all pairs in both together, is below the level: all
    that is said is true with a chance of ``1 - level`` at least.

    Args:
        means: of both, (L,).
        p_pairs: of both, (L, L), two-sided, of no difference.
        level: chance that anything is wrong.
    """
    upper = np.triu_indices(len(means[0]), 1)
    p_M = holm(np.concatenate([p_LL[upper] for p_LL in p_pairs]))
    found = []
    for mean_L, p_P in zip(means, np.split(p_M, 2), strict=True):
        sign_LL = np.zeros((len(mean_L), len(mean_L)), np.int8)
        sign_LL[upper] = np.where(p_P < level, np.sign(mean_L[upper[0]] - mean_L[upper[1]]), 0)
        found.append(sign_LL - sign_LL.T)
    return found[0], found[1]


def bounds(one_LL: Signs, other_LL: Signs) -> tuple[float, float]:
    """Smallest and largest rank correlation of any two orders that keep to what is decided.

    Up to 7 layers of all orders there are; of more, limits that are never inside these. Ties of
    true values are never beyond orders without.

    Args:
        one_LL: 1 where the first layer is known to have the larger value of one, -1 the smaller.
        other_LL: of the other.
    """
    count = len(one_LL)
    if not (one_LL.any() and other_LL.any()):
        return -1.0, 1.0  # any order of the one is held against that of the other
    if count > MOST_ENUMERATED:
        return _outer(one_LL, other_LL)
    one_PL, other_PL = _kept(one_LL), _kept(other_LL)
    size = count * (count**2 - 1) / 12
    low, high = size, -size
    for start in range(0, len(one_PL), 256):
        sum_PP = one_PL[start : start + 256] @ other_PL.T
        low, high = min(low, float(sum_PP.min())), max(high, float(sum_PP.max()))
    return low / size, high / size


def _centred(value_L: Floats) -> Floats:
    checked(value_L)
    # accuracies of the same rows differ by 1/N or not at all; less is rounding
    ranks_L: Floats = rankdata(np.round(value_L, 12))
    return ranks_L - (len(value_L) + 1) / 2


@cache
def _orders(count: int) -> NDArray[np.int64]:
    """All of them, (L!, L)."""
    every = np.array(list(permutations(range(count))), np.int64)
    assert len(every) == factorial(count)
    return every


def _kept(sign_LL: Signs) -> Floats:
    """Centred ranks of all orders that keep to what is decided."""
    rank_PL = _orders(len(sign_LL))
    for above, below in np.argwhere(sign_LL > 0):
        rank_PL = rank_PL[rank_PL[:, above] > rank_PL[:, below]]
    found: Floats = np.subtract(rank_PL, (len(sign_LL) - 1) / 2, dtype=np.float64)
    return found


def _outer(one_LL: Signs, other_LL: Signs) -> tuple[float, float]:
    """Limits from the ranks that every layer may have, as if each chose for itself.

    ``rho = 1 - 6 sum_l (a_l - b_l)**2 / (L**3 - L)``, and minus the same of the reversed order.
    """
    count = len(one_LL)
    low_L, high_L = _range(one_LL)
    first_L, last_L = _range(other_LL)
    same = _of_distances(low_L, high_L, first_L, last_L)
    reversed_ = _of_distances(low_L, high_L, count - 1 - last_L, count - 1 - first_L)
    return max(-1.0, same[0], -reversed_[1]), min(1.0, same[1], -reversed_[0])


def _range(sign_LL: Signs) -> tuple[Floats, Floats]:
    """Smallest and largest rank of every layer, from 0."""
    low_L = (sign_LL > 0).sum(1).astype(np.float64)
    high_L = len(sign_LL) - 1 - (sign_LL < 0).sum(1).astype(np.float64)
    return low_L, high_L


def _of_distances(
    low_L: Floats, high_L: Floats, first_L: Floats, last_L: Floats
) -> tuple[float, float]:
    near_L = np.maximum(0, np.maximum(low_L - last_L, first_L - high_L))
    far_L = np.maximum(high_L - first_L, last_L - low_L)
    factor = 6 / (len(low_L) ** 3 - len(low_L))
    return 1 - factor * float(far_L @ far_L), 1 - factor * float(near_L @ near_L)
