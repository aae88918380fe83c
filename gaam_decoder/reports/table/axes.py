"""Numbers along which rows differ while the rest of their recipe is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.row_axes import LAYER, LAYERS, axes_of, usable
from gaam_decoder.reports.table.row_names import numbered

DECADE = 10
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that differ in one number, or in two, alone."""

    label: str
    values: tuple[tuple[float, ...], ...]
    """For every row where it stands, ascending."""
    places: tuple[int, ...]
    """Of the rows in the table."""


@dataclass(frozen=True, slots=True)
class Axes:
    """One axis or two, and all series along them.

    Those of most rows come first, and one of every mechanism before the second of any.
    """

    names: tuple[str, ...]
    series: tuple[Series, ...]


def along(table: Table, count: int = 1) -> list[Axes]:
    """Every axis, or pair of axes, along which some rows of a table differ.

    Two rows are of one series where mechanism, head and recipe are the same but for the axes; of
    rows that were tuned, what was tuned may differ too. Rows of shuffled labels are of none.

    Args:
        table: whose rows.
        count: of axes, 1 or 2.
    """
    known = [(place, *axes_of(row)) for place, row in enumerate(table.rows) if usable(row)]
    names = sorted({name for _, numbers, _ in known for name in numbers})
    found = []
    for chosen in combinations(names, count):
        groups: dict[tuple[Any, ...], dict[tuple[float, ...], int]] = {}
        for place, numbers, rest in known:
            if all(name in numbers for name in chosen):
                others = {k: v for k, v in numbers.items() if k not in chosen}
                key = (*rest, *sorted(others.items()))
                values = tuple(numbers[name] for name in chosen)
                groups.setdefault(key, {})[values] = place
        kept = {key: of for key, of in groups.items() if _spans(of, count)}
        if kept:
            found.append(Axes(chosen, _series(table, kept, chosen)))
    return found


def logarithmic(name: str, values: Sequence[float]) -> bool:
    """Whether an axis is to have equal steps for equal ratios."""
    if name in (LAYER, LAYERS) or min(values) <= 0:
        return False
    return max(values) / min(values) >= DECADE * (1 - 1e-9)


def _spans(of: Mapping[tuple[float, ...], int], count: int) -> bool:
    """Whether there are two values at least of every axis, and of two axes most of the grid."""
    different = [len(set(values)) for values in zip(*of, strict=True)]
    cells = 1
    for number in different:
        cells *= number
    return min(different) >= 2 and (count == 1 or 4 * len(of) >= 3 * cells)


def _series(
    table: Table,
    groups: Mapping[tuple[Any, ...], Mapping[tuple[float, ...], int]],
    chosen: tuple[str, ...],
) -> tuple[Series, ...]:
    def best(places: Sequence[int]) -> float:
        return max(table.rows[place].mean or 0.0 for place in places)

    made = []
    for label, of in zip(_names(table, groups, chosen), groups.values(), strict=True):
        values = tuple(sorted(of))
        made.append(Series(label, values, tuple(of[value] for value in values)))
    made.sort(key=lambda one: (-len(one.places), -best(one.places)))
    times: Counter[str] = Counter()
    turn = []
    for one in made:
        mechanism = table.rows[one.places[0]].attention.partition(":")[0]
        turn.append((times[mechanism], one))
        times[mechanism] += 1
    # one of every mechanism before the second of any, so that no control is left out
    return tuple(one for _, one in sorted(turn, key=lambda pair: pair[0]))


def _names(
    table: Table,
    groups: Mapping[tuple[Any, ...], Mapping[tuple[float, ...], int]],
    chosen: tuple[str, ...],
) -> list[str]:
    """Of every series what tells it from the others of its head, which is named where several are.

    Recipes of different heads differ in all that only one of them has: a fit has no epochs.
    """
    of_head: dict[str, list[set[Any]]] = {}
    for key in groups:
        of_head.setdefault(key[2], []).append(set(key[3:]))
    shared = {head: set.intersection(*parts) for head, parts in of_head.items()}
    several_heads = len(of_head) > 1
    names = []
    for key, of in groups.items():
        mechanism, words, head, *rest = key
        text = brief(table.rows[next(iter(of.values()))].attention)
        if any(name.startswith(f"{mechanism} ") for name in chosen):
            text = f"{mechanism}:{brief(words)}" if words else mechanism
        text += f" + {brief(head, 60)}" if several_heads else ""
        own = [part for part in rest if part not in shared[head]]
        own = [part for part in own if f"{mechanism} " not in part[0]]
        text += " " + ", ".join(brief(f"{name}={_spell(value)}") for name, value in own)
        names.append(text.strip())
    return numbered(names)


def _spell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
