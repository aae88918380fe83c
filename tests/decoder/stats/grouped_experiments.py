"""Simulated experiments in which rows belong together, and of which the truth is known.

A mechanism is right on a row where ``constant + row + own row + group + seed + noise`` is above 0.
Rows are easy or hard for both mechanisms, and for each in its own way; and so are groups, such as
speakers, for each mechanism apart: which of the two wins differs from group to group. S seeds, N
test rows, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from scipy.special import ndtr

from gaam_decoder import stats

CONSTANT, ROW, OWN, SEED, NOISE = 1.5, 1.0, 0.5, 0.1, 0.5
"""The constant, and standard deviations of what else makes a mechanism right, in logits."""
SEEDS, ROWS = 6, 400
MARGIN = 0.05
"""The margin of equivalence, and the difference of mechanisms that are not equally good."""


def zipf(num_groups: int) -> np.ndarray:
    """Sizes of groups that go down as 1, 1/2, 1/3, ..., of 400 rows in all."""
    share_G = 1 / np.arange(1, num_groups + 1)
    rows_G = np.maximum(1, np.floor(ROWS * share_G / share_G.sum())).astype(np.int64)
    rows_G[0] += ROWS - rows_G.sum()
    return rows_G


LAYOUTS = {
    "40 groups of 10": np.full(40, 10),
    "10 groups of 40": np.full(10, 40),
    "40 uneven groups": zipf(40),
    "10 uneven groups": zipf(10),
    "6 groups of 67": np.full(6, 67),
}
"""Rows of every group; the uneven ones have 2 to 113, and 13 to 140."""
EFFECTS = (0.0, 0.5, 1.0)
"""Standard deviations of groups, in logits, for each mechanism."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """How many of so many repetitions said what, over groups and, as if there were none, rows."""

    repetitions: int
    found: int
    """A difference, where both are equally good."""
    found_by_rows: int
    equivalent: int
    """Equivalent within the margin, where they differ by just that."""
    equivalent_by_rows: int
    held: int
    """The difference in its interval."""
    held_by_rows: int
    accuracy_held: int
    """The accuracy of a mechanism in its interval."""
    accuracy_held_by_rows: int
    power: int
    """A difference, where they differ by the margin."""
    power_by_rows: int
    equivalence: int
    """Equivalent within the margin, where both are equally good."""
    equivalence_by_rows: int


def accuracy(constant: float, effect: float) -> float:
    """Of all seeds on all rows of all groups."""
    variance = ROW**2 + OWN**2 + SEED**2 + NOISE**2 + effect**2
    return float(ndtr(constant / variance**0.5))


def shift_of(difference: float, effect: float) -> float:
    """By how much the first has to be better to be right on such a share of rows more."""

    def too_much(shift: float) -> float:
        return (
            accuracy(CONSTANT + shift, effect) - accuracy(CONSTANT, effect) - difference
        )

    return float(scipy.optimize.brentq(too_much, -1.0, 10.0, xtol=1e-10))


def hits(
    generator: np.random.Generator,
    group_N: np.ndarray,
    effect: float,
    shift: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Hits of both, (S, N); the first is better by the shift before it is right or wrong."""
    num_rows, num_groups = len(group_N), int(group_N.max()) + 1
    row_N = ROW * generator.normal(size=num_rows)

    def of_one(constant: float) -> np.ndarray:
        own_N = row_N + OWN * generator.normal(size=num_rows)
        own_N += effect * generator.normal(size=num_groups)[group_N]
        latent_SN = own_N + SEED * generator.normal(size=(SEEDS, 1))
        latent_SN += NOISE * generator.normal(size=(SEEDS, num_rows))
        return latent_SN + constant > 0

    return of_one(CONSTANT + shift), of_one(CONSTANT)


def simulate(layout: str, effect: float, repetitions: int) -> Rates:
    """Repeat an experiment, always the same ones."""
    rows_G = LAYOUTS[layout]
    group_N = np.repeat(np.arange(len(rows_G)), rows_G)
    generator = np.random.default_rng([*layout.encode(), int(10 * effect)])
    truth, shift = accuracy(CONSTANT, effect), shift_of(MARGIN, effect)
    counts = dict.fromkeys(Rates.__slots__, 0) | {"repetitions": repetitions}
    for _ in range(repetitions):
        same = hits(generator, group_N, effect)
        differ = hits(generator, group_N, effect, shift)
        for end, groups in (("", group_N), ("_by_rows", None)):
            equal = stats.claim(*same, margin=MARGIN, groups=groups)
            other = stats.claim(*differ, margin=MARGIN, groups=groups)
            interval = stats.two_level_interval(
                same[1], groups=stats.row_groups(groups)
            )
            assert equal.p_equivalent is not None
            assert other.p_equivalent is not None
            assert other.interval is not None
            assert interval is not None
            counts[f"found{end}"] += equal.significant
            counts[f"equivalent{end}"] += other.p_equivalent < stats.ALPHA
            counts[f"held{end}"] += other.interval[0] <= MARGIN <= other.interval[1]
            counts[f"accuracy_held{end}"] += interval[0] <= truth <= interval[1]
            counts[f"power{end}"] += other.verdict == "better"
            counts[f"equivalence{end}"] += equal.p_equivalent < stats.ALPHA
    return Rates(**counts)
