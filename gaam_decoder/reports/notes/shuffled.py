"""What there is to say of rows that learned from shuffled labels: they must be at chance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.rows import Row

FEWEST_SEEDS = 2
"""Of a verdict."""


def chance(row: Row) -> tuple[float, float]:
    """Accuracies that a decoder without information reaches, as fractions.

    From that of one who guesses with the shares p_c of the classes among the test rows, the sum of
    p_c squared, to that of one who always says the most frequent class, the largest p_c.
    """
    count_C = row.scores.labels_per_class
    share_C = count_C / count_C.sum()
    return float((share_C**2).sum()), float(share_C.max())


def verdict(row: Row) -> Literal["above", "at", "below"] | None:
    """Where the interval of a row over seeds and test rows is beside chance; None for one seed.

    One seed is one permutation. A decoder that tells four topics apart and gives each the label
    that happens to be most frequent there is right on a quarter of the rows on average, and by luck
    on half of them: rows alone say nothing of that.
    """
    low, high = chance(row)
    found = row.two_level
    if found is None or len(row.scores.seeds) < FEWEST_SEEDS:
        return None
    if found[0] > high:
        return "above"
    return "below" if found[1] < low else "at"


def shuffled(table: Table) -> Iterator[str]:
    """For each of these rows whether it is at chance, and what it means if not."""
    for label, row in zip(table.labels(), table.rows, strict=True):
        if not row.shuffled or row.mean is None:
            continue
        low, high = (100 * level for level in chance(row))
        text = f"{label}: must be at chance ({low:.1f} to {high:.1f}%: guesses by the shares of "
        text += f"the classes, or always the most frequent); {100 * row.mean:.1f}% "
        where = verdict(row)
        if where is None:
            text += "of one permutation, which by luck may be far from it: no verdict without "
            text += "several seeds"
            text += ", of which a fit has one" if row.fitted else ""
        elif where == "above":
            text += "is ABOVE it: something tells the decoder what it must not know"
            text += " (the test rows chose the epoch)" if row.select == "test" else ""
        elif where == "below":
            text += "is below it: the rows that learn and those that are tested are not independent"
        else:
            text += "is, within its interval"
        yield text


def leaks(table: Table) -> Iterator[str]:
    """That something leaks, for a place that nobody may miss."""
    above = [
        label
        for label, row in zip(table.labels(), table.rows, strict=True)
        if row.shuffled and row.scores.seeds and verdict(row) == "above"
    ]
    if above:
        yield f"Above chance with shuffled labels, so something leaks: {', '.join(above)}."
