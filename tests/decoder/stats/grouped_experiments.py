"""Simulated experiments in which rows belong together, and of which the truth is known.

A mechanism is right on a row where ``constant + row + own row + group + seed + noise``
is above 0. Rows are easy or hard for both of two mechanisms, and for each in its own
way. So are groups, such as speakers, for each mechanism apart: which of the two wins
differs from group to group. S seeds, N test rows, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import ndtr

from gaam_decoder import stats

Hits = NDArray[np.bool_]
Groups = NDArray[np.int64]
CONSTANT = 1.5
# standard deviations of what else makes a mechanism right, in logits
ROW = 1.0
OWN = 0.5
SEED = 0.1
NOISE = 0.5
SEEDS = 6
ROWS = 400
MARGIN = 0.05
"""The margin of equivalence, and the difference of mechanisms that are not equally
good."""
LAYOUTS = (
    "40 groups of 10",
    "10 groups of 40",
    "40 uneven groups",
    "10 uneven groups",
    "6 groups of 67",
)
EFFECTS = (0.0, 0.5, 1.0)
"""Standard deviations of groups, in logits, for each mechanism."""


def zipf(num_groups: int) -> Groups:
    """Sizes of groups that go down as 1, 1/2, 1/3, ..., of 400 rows in all."""
    share_G = 1 / np.arange(1, num_groups + 1)
    rows_G = np.maximum(1, np.floor(ROWS * share_G / share_G.sum())).astype(np.int64)
    rows_G[0] += ROWS - rows_G.sum()
    return rows_G


def group_sizes(layout: str) -> Groups:
    """Rows of every group; the uneven ones have 2 to 113, and 13 to 140."""
    words = layout.split()
    num_groups = int(words[0])
    if "uneven" in words:
        return zipf(num_groups)
    return np.full(num_groups, int(words[-1]))


@dataclass(kw_only=True, slots=True)
class Rates:
    """In how many of so many repetitions something was true.

    Over groups and, as if there were none, over rows.
    """

    repetitions: int
    found: int = 0
    """A difference, where both are equally good."""
    found_by_rows: int = 0
    equivalent: int = 0
    """Equivalent within the margin, where they differ by just that."""
    equivalent_by_rows: int = 0
    held: int = 0
    """The difference in its interval."""
    held_by_rows: int = 0
    accuracy_held: int = 0
    """The accuracy of a mechanism in its interval."""
    accuracy_held_by_rows: int = 0
    power: int = 0
    """A difference, where they differ by the margin."""
    power_by_rows: int = 0
    equivalence: int = 0
    """Equivalent within the margin, where both are equally good."""
    equivalence_by_rows: int = 0

    def count(self, name: str, is_true: bool, *, by_rows: bool) -> None:
        """Add one to this count where it is true."""
        name = f"{name}_by_rows" if by_rows else name
        setattr(self, name, getattr(self, name) + int(is_true))


def accuracy(constant: float, effect: float) -> float:
    """Of all seeds on all rows of all groups."""
    variance = ROW**2 + OWN**2 + SEED**2 + NOISE**2 + effect**2
    return float(ndtr(constant / variance**0.5))


def shift_of(difference: float, effect: float) -> float:
    """By how much the first has to be better to be right on such a share more."""

    def excess(shift: float) -> float:
        shifted = accuracy(CONSTANT + shift, effect)
        return shifted - accuracy(CONSTANT, effect) - difference

    return float(scipy.optimize.brentq(excess, -1.0, 10.0, xtol=1e-10))


def hits(
    generator: np.random.Generator,
    group_N: Groups,
    effect: float,
    shift: float = 0.0,
) -> tuple[Hits, Hits]:
    """Hits of both, (S, N); the first is better by the shift."""
    num_rows = len(group_N)
    num_groups = int(group_N.max()) + 1
    row_N = ROW * generator.normal(size=num_rows)

    def hits_of_one(constant: float) -> Hits:
        own_N = row_N + OWN * generator.normal(size=num_rows)
        own_N += effect * generator.normal(size=num_groups)[group_N]
        latent_SN = own_N + SEED * generator.normal(size=(SEEDS, 1))
        latent_SN += NOISE * generator.normal(size=(SEEDS, num_rows))
        return np.asarray(latent_SN + constant > 0)

    first_SN = hits_of_one(CONSTANT + shift)
    second_SN = hits_of_one(CONSTANT)
    return first_SN, second_SN


def count_claims(
    rates: Rates,
    same: tuple[Hits, Hits],
    different: tuple[Hits, Hits],
    groups: Groups | None,
    true_accuracy: float,
) -> None:
    """Count what is claimed of equally good mechanisms, and of different ones."""
    by_rows = groups is None
    equal = stats.claim(*same, margin=MARGIN, groups=groups)
    better = stats.claim(*different, margin=MARGIN, groups=groups)
    interval = stats.two_level_interval(same[1], groups=stats.row_groups(groups))
    assert equal.p_equivalent is not None
    assert better.p_equivalent is not None
    assert better.interval is not None
    assert interval is not None
    is_equivalent = better.p_equivalent < stats.ALPHA
    is_held = better.interval[0] <= MARGIN <= better.interval[1]
    is_accuracy_held = interval[0] <= true_accuracy <= interval[1]
    is_equivalence = equal.p_equivalent < stats.ALPHA
    rates.count("found", equal.significant, by_rows=by_rows)
    rates.count("equivalent", is_equivalent, by_rows=by_rows)
    rates.count("held", is_held, by_rows=by_rows)
    rates.count("accuracy_held", is_accuracy_held, by_rows=by_rows)
    rates.count("power", better.verdict == "better", by_rows=by_rows)
    rates.count("equivalence", is_equivalence, by_rows=by_rows)


def simulate(layout: str, effect: float, repetitions: int) -> Rates:
    """Repeat an experiment, always the same ones."""
    rows_G = group_sizes(layout)
    group_N = np.repeat(np.arange(len(rows_G)), rows_G)
    generator = np.random.default_rng([*layout.encode(), int(10 * effect)])
    true_accuracy = accuracy(CONSTANT, effect)
    shift = shift_of(MARGIN, effect)
    rates = Rates(repetitions=repetitions)
    for _ in range(repetitions):
        same = hits(generator, group_N, effect)
        different = hits(generator, group_N, effect, shift)
        count_claims(rates, same, different, group_N, true_accuracy)
        count_claims(rates, same, different, None, true_accuracy)
    return rates
