"""What tells the rows of a table apart: their names, and the numbers along which they differ.

S seeds, L layers.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.analysis.importance import factor_by_seed
from gaam_decoder.number_lists import DRAWN_BY, parse_layers
from gaam_decoder.reports.rows import Floats, Row
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.rank_correlation import RankCorrelation, rank_correlation

SHUFFLED = "labels shuffled"
AT_EDGE = " (edge)"
UNSPELT = ("select", "allow_train_as_test", "shuffle_labels")
"""Settings that rows are marked with in words of their own."""
NO_AXES = ("split_seed", "fold", "repeats", "val_fraction", "shard_rows")
"""Numbers of a recipe that are no quantity, or decide which rows are which."""
LAYER, LAYERS = "encoder layer", "number of layers"
DECADE = 10
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
LEAST_LAYERS = 4
"""Three layers have six orders: every rank correlation is as good as chance."""
_OPTION = re.compile(r"([a-z_]+)=(-?[0-9.]+(?:e-?[0-9]+)?)", re.ASCII)
Numbers = dict[str, float]


def settings(rows: Sequence[Row]) -> list[str]:
    """For every row the settings that not all rows share, such as ``lr=0.001``.

    A setting that a row leaves at nothing (all layers, no clipping) is not spelled out; that
    labels were shuffled always is, and what was tuned, which is marked where it is the smallest
    or largest value that was tried.
    """

    def values(name: str) -> set[str]:  # in the rows in which the setting plays a part
        always = name in DRAWN_BY
        playing = [row for row in rows if name in row.recipe or always or not row.fitted]
        return {str(row.recipe.get(name)) for row in playing}

    tuned = {name for row in rows for tuning in row.tunings for name in tuning.names}
    names = sorted({name for row in rows for name in row.recipe if name not in UNSPELT})
    varied = [name for name in names if name in tuned or len(values(name)) > 1]
    found = []
    for row in rows:
        told = [name for name in varied if row.recipe.get(name) is not None]
        spelt = [
            brief(f"{name}={row.recipe[name]}") + AT_EDGE * (name in row.at_edge) for name in told
        ]
        found.append(", ".join([SHUFFLED] * row.shuffled + spelt))
    return found


def shows_head(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a row is called by its head too: where those of others differ, or it is a fit."""
    return row.fitted or len({row.head for row in rows if not row.fitted}) > 1


def labels(rows: Sequence[Row]) -> list[str]:
    """For every row a name that no other row of the table has, as short as can be.

    The head is in it where heads differ, and always that an epoch was chosen on test, that the test
    rows are those that were learned from, or that labels were shuffled. Where names are so long
    that what tells them apart was cut, they are numbered.
    """
    names = [
        brief(row.attention)
        + f" + {brief(row.head, 60)}" * shows_head(row, rows)
        + f" {SHUFFLED}" * row.shuffled
        for row in rows
    ]
    selects: dict[str, set[str]] = {}
    for name, row in zip(names, rows, strict=True):
        selects.setdefault(name, set()).add(row.select)
    names = [
        name + f" select={row.select}" * (row.select == "test" or len(selects[name]) > 1)
        for name, row in zip(names, rows, strict=True)
    ]
    times, told = Counter(names), []
    for name, row, spelt in zip(names, rows, settings(rows), strict=True):
        spelt = spelt.replace(AT_EDGE, "").removeprefix(f"{SHUFFLED}, ")
        split = brief(row.recipe.get("train_split", "train"), 40)
        name += f" {spelt}" if times[name] > 1 and spelt else ""
        told.append(name + f" test={split}" * row.on_training_rows)
    return numbered(told)


def numbered(names: Sequence[str]) -> list[str]:
    """The names, those that are there several times with their place behind them."""
    times = Counter(names)
    taken = {name for name, count in times.items() if count == 1}
    found = []
    for place, name in enumerate(names, 1):
        new = f"{name} #{place}" if times[name] > 1 else name
        while times[name] > 1 and new in taken:
            new += "'"
        taken.add(new)
        found.append(new)
    return found


def usable(row: Row) -> bool:
    """Whether a row is of any axis: some seed finished, and labels were not shuffled."""
    return bool(row.scores.seeds) and not row.shuffled


def axes_of(row: Row) -> tuple[Numbers, tuple[Any, ...]]:
    """What of a row may be an axis, and all the rest that has to be the same.

    Every number of its recipe and of its mechanism's options; of a row that was tuned not what was.
    The rest starts with the mechanism, its options that are no numbers, and the head.
    """
    tuned = {name for tuning in row.tunings for name in tuning.names}
    numbers: Numbers = {}
    rest = []
    for name, value in sorted(row.recipe.items()):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name == "layers" and value:
            layers = parse_layers(value)
            numbers |= {LAYER: layers[0]} if len(layers) == 1 else {LAYERS: len(layers)}
        elif number and name not in (*NO_AXES, *tuned):
            numbers[name] = float(value)
        elif value is not None and name not in tuned:
            rest.append((name, str(value)))
    if row.folds == 1 and not any(row.recipe.get(name) for name in DRAWN_BY):
        run = row.runs[0]
        if count := run.cache["rows"].get(run.recipe["train_split"]):
            numbers["train_rows"] = count
    mechanism, _, options = row.attention.partition(":")
    numbers |= {f"{mechanism} {name}": float(value) for name, value in _OPTION.findall(options)}
    words = ",".join(part for part in options.split(",") if not _OPTION.fullmatch(part))
    return numbers, (mechanism, words, row.head, *rest)


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


def along(rows: Sequence[Row], count: int = 1) -> list[Axes]:
    """Every axis, or pair of axes, along which some rows of a table differ.

    Two rows are of one series where mechanism, head and recipe are the same but for the axes; of
    rows that were tuned, what was tuned may differ too. Rows of shuffled labels are of none.

    Args:
        rows: of a table.
        count: of axes, 1 or 2.
    """
    known = [(place, *axes_of(row)) for place, row in enumerate(rows) if usable(row)]
    found = []
    for chosen in combinations(sorted({name for _, of, _ in known for name in of}), count):
        groups: dict[tuple[Any, ...], dict[tuple[float, ...], int]] = {}
        for place, numbers, rest in known:
            if all(name in numbers for name in chosen):
                key = (*rest, *sorted((k, v) for k, v in numbers.items() if k not in chosen))
                groups.setdefault(key, {})[tuple(numbers[name] for name in chosen)] = place
        groups = {key: of for key, of in groups.items() if _spans(of)}
        if groups:
            found.append(Axes(chosen, _series(rows, groups, chosen)))
    return found


def logarithmic(name: str, values: Sequence[float]) -> bool:
    """Whether an axis is to have equal steps for equal ratios."""
    if name in (LAYER, LAYERS) or min(values) <= 0:
        return False
    return max(values) / min(values) >= DECADE * (1 - 1e-9)


def _spans(of: Mapping[tuple[float, ...], int]) -> bool:
    """Whether there are two values at least of every axis, and of two axes most of the grid."""
    different = [len(set(values)) for values in zip(*of, strict=True)]
    return min(different) >= 2 and 4 * len(of) >= 3 * math.prod(different)


def _series(
    rows: Sequence[Row],
    groups: Mapping[tuple[Any, ...], Mapping[tuple[float, ...], int]],
    chosen: tuple[str, ...],
) -> tuple[Series, ...]:
    """With what tells each from the others of its head, which is named where several are."""
    of_head: dict[str, list[set[Any]]] = {}
    for key in groups:
        of_head.setdefault(key[2], []).append(set(key[3:]))
    # recipes of different heads differ in all that only one of them has: a fit has no epochs
    shared = {head: set.intersection(*parts) for head, parts in of_head.items()}
    names = []
    for (mechanism, words, head, *rest), of in groups.items():
        text = brief(rows[next(iter(of.values()))].attention)
        if any(name.startswith(f"{mechanism} ") for name in chosen):
            text = f"{mechanism}:{brief(words)}" if words else mechanism
        text += f" + {brief(head, 60)}" if len(of_head) > 1 else ""
        own = [part for part in rest if part not in shared[head] and f"{mechanism} " not in part[0]]
        spelt = [(name, f"{v:g}" if isinstance(v, float) else v) for name, v in own]
        text += " " + ", ".join(brief(f"{name}={value}") for name, value in spelt)
        names.append(text.strip())
    made = [
        Series(label, tuple(sorted(of)), tuple(of[value] for value in sorted(of)))
        for label, of in zip(numbered(names), groups.values(), strict=True)
    ]
    made.sort(key=lambda one: (-len(one.places), -max(rows[p].mean or 0.0 for p in one.places)))
    times: Counter[str] = Counter()
    turn = []
    for one in made:
        mechanism = rows[one.places[0]].attention.partition(":")[0]
        turn.append(times[mechanism])
        times[mechanism] += 1
    # one of every mechanism before the second of any, so that no control is left out
    return tuple(made[place] for place in sorted(range(len(made)), key=turn.__getitem__))


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Importance that a mechanism gives to layers, beside the accuracy on each alone."""

    row: Row = field(repr=False)
    """Whose importance it is."""
    singles: tuple[Row, ...] = field(repr=False)
    """A row for every layer."""
    layers: tuple[int, ...]
    seeds: tuple[int, ...]
    """That all of these have."""
    importance: Floats = field(repr=False)
    """Of every seed of the row, (S, L)."""
    accuracy: Floats = field(repr=False)
    """Of every seed of the singles, (S, L)."""
    found: RankCorrelation


def beside_alone(rows: Sequence[Row]) -> Iterator[Beside]:
    """Every row with attention maps beside rows on one of its layers each.

    Four layers or more, with the same head and recipe but for the layers; what was tuned may
    differ. The singles of the row's own mechanism count, or where it has none, those of others.
    """
    singles: dict[Any, dict[tuple[str, Any], dict[int, Row]]] = {}
    for row in rows:
        if usable(row) and len(row.runs[0].layer_numbers) == 1:
            same, tuned = _but_layers(row)
            of = singles.setdefault(same, {}).setdefault((row.attention, tuned), {})
            of[row.runs[0].layer_numbers[0]] = row
    for row in rows:
        layers = row.runs[0].layer_numbers
        if not usable(row) or row.folds > 1 or len(layers) < LEAST_LAYERS:
            continue
        same, tuned = _but_layers(row)
        there = {
            key: of
            for key, of in singles.get(same, {}).items()
            if len(of) >= LEAST_LAYERS and set(of) <= set(layers)
        }
        own = {key: of for key, of in there.items() if key[0] == row.attention} or there
        own = {key: of for key, of in own.items() if key[1] == tuned} or own
        factor_SL = factor_by_seed(row.runs, row.scores.seeds) if own else None
        if factor_SL is None or not np.isfinite(factor_SL).all():
            continue
        for of in own.values():
            alone = [of[layer] for layer in sorted(of)]
            seeds = sorted(set.intersection(*(set(one.scores.seeds) for one in alone)))
            places = [[one.scores.seeds.index(seed) for seed in seeds] for one in alone]
            mine_SL = factor_SL[:, [layers.index(layer) for layer in sorted(of)]]
            right = [one.scores.by_row[at] for one, at in zip(alone, places, strict=True)]
            if seeds:
                yield Beside(
                    row=row,
                    singles=tuple(alone),
                    layers=tuple(sorted(of)),
                    seeds=tuple(seeds),
                    importance=mine_SL,
                    accuracy=np.stack([one.mean(1, dtype=np.float64) for one in right], 1),
                    found=rank_correlation(mine_SL, np.stack(right)),
                )


def _but_layers(row: Row) -> tuple[Any, Any]:
    """Head and recipe but for the layers and what may be tuned, and what of that there is."""
    numbers, (mechanism, _, head, *rest) = axes_of(row)
    tuned = tuple(sorted((name, numbers[name]) for name in TUNED if name in numbers))
    others = {
        (name, value)
        for name, value in numbers.items()
        if name not in (LAYER, LAYERS, *TUNED) and not name.startswith(f"{mechanism} ")
    }
    return (head, *rest, *sorted(others)), tuned
