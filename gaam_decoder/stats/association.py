"""What may be said of two quantities of the same layers: do they rise together?

S seeds of one, T of the other, L layers, N test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.claims import claim
from gaam_decoder.stats.limits import ALPHA
from gaam_decoder.stats.paired import holm
from gaam_decoder.stats.rank_association import (
    LEAST_LAYERS,
    bounds,
    orders_of,
    p_of_pairs,
    permutation,
    spearman,
)
from gaam_decoder.stats.seeds_alone import LEAST_SEEDS

Floats = NDArray[np.float64]
Verdict = Literal["together", "opposed", "undecided"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """Importance of L layers and accuracy on each alone; see ``associate``."""

    rho: float | None
    """Spearman's; None where one of both is the same of all layers."""
    num_layers: int
    num_seeds: tuple[int, int]
    """Of the importance, and of the accuracies."""
    p: float | None
    """Two-sided, over orders of the layers; None with fewer than 6 seeds of either."""
    exact: bool
    p_holm: float | None = None
    """``p`` corrected for the others of a report; None alone."""
    num_tests: int = 1
    """That it was corrected for."""
    means: tuple[Floats, Floats] = field(repr=False)
    p_pairs: tuple[Floats, Floats] | None = field(repr=False)
    """Of every two layers having the same true value, of both; None without ``p``."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95%, of the rank correlation of the true values of these layers."""
        return self._limits(ALPHA)

    @property
    def verdict(self) -> Verdict:
        """Whether they rise together: beyond chance, and whatever the noise hides.

        Both the corrected p has to be below 0.05 and the interval, as wide as many tests ask for,
        to leave out 0.
        """
        p = self.p if self.p_holm is None else self.p_holm
        limits = self._limits(ALPHA / self.num_tests)
        if p is None or p >= ALPHA or limits is None or limits[0] <= 0 <= limits[1]:
            return "undecided"
        return "together" if limits[0] > 0 else "opposed"

    @property
    def testable(self) -> bool:
        """Whether there is a p."""
        return self.p is not None

    @property
    def silent(self) -> bool:
        """Whether there are seeds enough, and nothing to test: it counts as a test nonetheless."""
        return self.rho is None and min(self.num_seeds) >= LEAST_SEEDS

    def _limits(self, level: float) -> tuple[float, float] | None:
        if self.p_pairs is None:
            return None
        one, other = orders_of(self.means, self.p_pairs, level)
        return bounds(one, other)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "rho": self.rho,
            "ci95_seeds_and_rows": list(self.interval) if self.interval else None,
            "p": self.p,
            "p_exact": self.exact,
            "p_holm": self.p_holm,
            "verdict": self.verdict,
        }


class Alone(NamedTuple):
    """Accuracies of L layers, each alone; ``alone`` makes one."""

    num_seeds: int
    means: Floats
    """Of every layer, (L,)."""
    p_pairs: Floats | None
    """(L, L), of every two layers being as accurate; None with fewer than 6 seeds."""


def alone(hits: Sequence[NDArray[Any]]) -> Alone:
    """Every two layers compared by ``claim``, over seeds and test rows.

    Args:
        hits: for every layer (T, N), whether each seed is right on each row; of the same seeds.
    """
    # summed as whole numbers: equal shares are equal
    mean_L = np.array([one.sum(dtype=np.float64) / one.size for one in hits])
    seeds = len(hits[0])
    if seeds < LEAST_SEEDS:
        return Alone(seeds, mean_L, None)
    p_LL = np.ones((len(hits), len(hits)))
    for first, second in combinations(range(len(hits)), 2):
        p = claim(hits[first], hits[second]).p
        p_LL[first, second] = p_LL[second, first] = 1.0 if p is None else p
    return Alone(seeds, mean_L, p_LL)


def associate(importance_SL: Floats, accuracies: Alone) -> Association:
    """The rank correlation of the importance of layers with the accuracy on each alone.

    The interval is of these L layers: the rank correlation of what more seeds and more test rows
    would show in the end. Every two layers are compared in both quantities (importance by t tests
    paired by seed, accuracy by ``claim``, over seeds and rows), all at once at a level of 5%; what
    these leave open may be in any order, and the interval goes from the smallest rank correlation
    of such orders to the largest. It holds 95% or more: a bootstrap of ranks does not, since noise
    alone brings a rank correlation nearer to 0. Importance is a mean over the test rows, which are
    taken as given in it.

    The p asks another question: might such a rank correlation be chance, were the layers any?

    Args:
        importance_SL: (S, L), a seed and four layers at least.
        accuracies: of the same layers.

    Raises:
        ValueError: fewer layers or seeds, not the same layers, NaN or infinity.

    Source: confidence sets of ranks from pairwise comparisons: Mogstad, Romano, Shaikh and Wilhelm
        2024, "Inference for ranks with applications to mobility across neighbourhoods and academic
        achievement across countries".
    """
    seeds, count = importance_SL.shape
    if count != len(accuracies.means) or count < LEAST_LAYERS or not seeds:
        raise ValueError(f"seeds, and the same layers of both, {LEAST_LAYERS} at least")
    means = importance_SL.mean(0), accuracies.means
    rho, both = spearman(*means), (seeds, accuracies.num_seeds)
    about: dict[str, Any] = {"rho": rho, "num_layers": count, "num_seeds": both, "means": means}
    if rho is None or seeds < LEAST_SEEDS or accuracies.p_pairs is None:
        return Association(p=None, exact=True, p_pairs=None, **about)
    found = permutation(*means)
    p_pairs = p_of_pairs(importance_SL), accuracies.p_pairs
    return Association(p=found.p, exact=found.exact, p_pairs=p_pairs, **about)


def corrected(found: Sequence[Association], untested: int = 0) -> list[Association]:
    """Corrected by Holm for one another, and for more tests as if they found nothing.

    Args:
        found: all of a report.
        untested: further tests.
    """
    tested = [one for one in found if one.testable]
    ones = np.ones(sum(one.silent for one in found) + untested)
    adjusted = iter(holm(np.array([*(one.p for one in tested), *ones])).tolist())
    total = len(tested) + len(ones)
    return [
        replace(one, p_holm=next(adjusted), num_tests=total) if one.testable else one
        for one in found
    ]
