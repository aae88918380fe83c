"""Importance that a mechanism gives to layers, beside the accuracy of each layer alone.

S seeds, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.analysis.importance import factor_by_seed
from gaam_decoder.reports.comparisons.pairs import key_of
from gaam_decoder.reports.table.row_axes import LAYER, LAYERS, axes_of, usable
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.association import Alone, Association, alone, associate, corrected
from gaam_decoder.stats.rank_association import LEAST_LAYERS, spearman
from gaam_decoder.stats.seeds_alone import LEAST_SEEDS

Floats = NDArray[np.float64]


class _Singles(NamedTuple):
    """Rows on one layer each that differ in nothing else."""

    mechanism: str
    tuned: dict[str, float]
    """Numbers that may differ from those of a row on all layers."""
    rows: dict[int, Row]
    """By layer, ascending."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """That are of all layers."""
        every = [set(row.scores.seeds) for row in self.rows.values()]
        return tuple(sorted(set.intersection(*every)))

    def scores(self) -> Iterator[tuple[Floats, NDArray[Any]]]:
        """Of every layer accuracies (T,) and hits (T, N) of these seeds."""
        for row in self.rows.values():
            places = [row.scores.seeds.index(seed) for seed in self.seeds]
            yield row.scores.accuracy[places], row.scores.by_row[places]


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One mechanism with attention maps over all layers that have a row of their own."""

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
    found: Association

    @property
    def of_depth(self) -> float | None:
        """Rank correlation of the number of a layer with its accuracy."""
        return spearman(np.array(self.layers, np.float64), self.found.means[1])

    @property
    def left_out(self) -> int:
        """Seeds that some layers lack, or that failed there."""
        return len({seed for row in self.singles for seed in row.seeds} - set(self.seeds))


class LayerFamily:
    """All of these of a report, which are corrected for one another."""

    def __init__(
        self, row_lists: Sequence[Sequence[Row]], beside: Sequence[LayerFamily] = ()
    ) -> None:
        """Find what belongs together; nothing is computed yet.

        Args:
            row_lists: rows of every table.
            beside: what filters left out too.
        """
        self._matched = [list(_matched(rows)) for rows in row_lists]
        self._beside = beside

    def rows(self, place: int) -> list[Row]:
        """Rows of a table that lie over all layers of some singles."""
        return list({id(row): row for row, _ in self._matched[place]}.values())

    @cached_property
    def keys(self) -> set[frozenset[str]]:
        """What makes each that can be claimed the same as in another report."""
        own = {
            frozenset(map(key_of, [row, *singles.rows.values()]))
            for matched in self._matched
            for row, singles in matched
            if min(len(row.scores.seeds), len(singles.seeds)) >= LEAST_SEEDS
            and row.importance is not None
        }
        return own.union(*(family.keys for family in self._beside))

    @cached_property
    def tables(self) -> list[tuple[Beside, ...]]:
        """Of every table, computed and corrected."""
        accuracies: dict[int, Alone] = {}  # the same singles stand beside many mechanisms
        made: list[list[Beside]] = []
        for matched in self._matched:
            made.append([])
            for row, singles in matched:
                factor_SL = _importance(row, tuple(singles.rows))
                if factor_SL is None:
                    continue
                if id(singles) not in accuracies:
                    accuracies[id(singles)] = alone([hits for _, hits in singles.scores()])
                made[-1].append(_beside(row, singles, factor_SL, accuracies[id(singles)]))
        every = [one.found for of in made for one in of]
        counted = sum(found.testable or found.silent for found in every)
        found = iter(corrected(every, max(0, len(self.keys) - counted)))
        return [tuple(replace(one, found=next(found)) for one in of) for of in made]


@dataclass(frozen=True, slots=True)
class TableLayers:
    """Those of one table of a report."""

    family: LayerFamily
    place: int

    @property
    def found(self) -> tuple[Beside, ...]:
        """Computed and corrected, once for all that ask."""
        return self.family.tables[self.place]

    @property
    def without(self) -> list[Row]:
        """Rows over all layers of some singles that have no attention map of finite numbers."""
        there = {id(one.row) for one in self.found}
        return [row for row in self.family.rows(self.place) if id(row) not in there]


def _matched(rows: Sequence[Row]) -> Iterator[tuple[Row, _Singles]]:
    """Rows over all layers of some singles, whose head and recipe are theirs but for the layers.

    What was tuned may differ; where nothing was, rate and decay are the same, if any are so. The
    singles of the row's own mechanism count, or where it has none, those of every other.
    """
    groups = _singles(rows)
    for row in rows:
        if not usable(row) or len(row.runs[0].layer_numbers) < LEAST_LAYERS:
            continue
        mechanism, tuned, same = _told(row)
        there = [
            singles
            for singles in groups.get(same, [])
            if set(singles.rows) <= set(row.runs[0].layer_numbers)
        ]
        there = [one for one in there if one.mechanism == mechanism] or there
        yield from ((row, one) for one in [s for s in there if s.tuned == tuned] or there)


def _singles(rows: Sequence[Row]) -> dict[Any, list[_Singles]]:
    """By what others have to share with them."""
    found: dict[Any, dict[Any, _Singles]] = {}
    for row in rows:
        layers = row.runs[0].layer_numbers
        if not usable(row) or len(layers) > 1:
            continue
        mechanism, tuned, same = _told(row)
        of = found.setdefault(same, {})
        key = (mechanism, *sorted(tuned.items()))
        of.setdefault(key, _Singles(mechanism, tuned, {})).rows[layers[0]] = row
    return {
        same: [
            one._replace(rows=dict(sorted(one.rows.items())))
            for one in of.values()
            if len(one.rows) >= LEAST_LAYERS and one.seeds
        ]
        for same, of in found.items()
    }


def _told(row: Row) -> tuple[str, dict[str, float], Any]:
    """Its mechanism with options, what may be tuned, and all the rest."""
    numbers, (_, _, head, *rest) = axes_of(row)
    name = row.attention.partition(":")[0]
    tuned = {key: value for key, value in numbers.items() if key in TUNED}
    apart = {LAYER, LAYERS, *TUNED}
    same = {k: v for k, v in numbers.items() if k not in apart and not k.startswith(f"{name} ")}
    return row.attention, tuned, (head, *rest, *sorted(same.items()))


def _importance(row: Row, layers: Sequence[int]) -> Floats | None:
    """Of these layers for every seed, (S, L).

    None over folds, and where the mechanism has no attention map, or not one of finite numbers.
    """
    factor_SL = factor_by_seed(row.runs, row.scores.seeds) if row.folds == 1 else None
    if factor_SL is None or not np.isfinite(factor_SL).all():
        return None
    every = row.runs[0].layer_numbers
    return factor_SL[:, [every.index(layer) for layer in layers]]


def _beside(row: Row, singles: _Singles, factor_SL: Floats, accuracies: Alone) -> Beside:
    return Beside(
        row=row,
        singles=tuple(singles.rows.values()),
        layers=tuple(singles.rows),
        seeds=singles.seeds,
        importance=factor_SL,
        accuracy=np.stack([accuracy_T for accuracy_T, _ in singles.scores()], 1),
        found=associate(factor_SL, accuracies),
    )
