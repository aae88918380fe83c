"""Where final models stand in a report: beside the evaluated runs of the same recipe.

They have no test rows, so they are no rows of a table, and in no statistic, comparison or picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.comparisons.against_baseline import same_recipe
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import OF_TEST, TUNED, Tuning, first_runs, reported

if TYPE_CHECKING:
    from gaam_decoder.reports.table.base import Table


HEADING = "final models"
UNSPELT = (*OF_TEST, "select", "allow_train_as_test", "shuffle_labels")
"""Settings that are said in other words, or play no part."""


def lines(table: Table) -> list[str]:
    """A line for every final model of a table."""
    return [final.in_words() for final in table.finals]


def all_runs(table: Table) -> list[RunResult]:
    """Those of its rows, and of its final models."""
    runs = [run for row in table.rows for run in row.runs]
    return runs + [run for final in table.finals for run in final.runs]


def placed(
    runs: Sequence[RunResult], tables: Sequence[Table], tunings: Mapping[str, Tuning]
) -> tuple[list[tuple[FinalModel, ...]], list[tuple[FinalModel, ...]]]:
    """Final models beside the first table that has a row of the same recipe.

    Where none has, beside the first of the same cache.

    Args:
        runs: that were not evaluated.
        tables: of those that were.
        tunings: how the recipes of some were chosen, by key.

    Returns:
        For every table its final models, and those of every cache that has no table.
    """
    by_key: dict[str, list[RunResult]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    beside: list[list[FinalModel]] = [[] for _ in tables]
    alone: dict[str, list[FinalModel]] = {}
    for same in by_key.values():
        fingerprint = same[0].cache["fingerprint"]
        near = [
            place for place, table in enumerate(tables) if table.cache["fingerprint"] == fingerprint
        ]
        rows = {place: _rows_of(same[0], tables[place].rows) for place in near}
        expected = tuple(
            Expected(tables[place].where, row.scores.seeds, row.mean, _chosen(same[0], row))
            for place in near
            for row in rows[place]
        )
        around = [run for of in by_key.values() for run in of[:1]]
        around += [run for place in near for row in tables[place].rows for run in row.runs[:1]]
        # a fit has no settings of steps
        others = [run.recipe for run in around if bool(run.fit) == bool(same[0].fit)]
        final = _final(same, tunings.get(same[0].key), expected, others)
        if near:
            beside[next((place for place in near if rows[place]), near[0])].append(final)
        else:
            alone.setdefault(fingerprint, []).append(final)
    return [_sorted(of) for of in beside], [_sorted(of) for of in alone.values()]


def _sorted(finals: Sequence[FinalModel]) -> tuple[FinalModel, ...]:
    return tuple(sorted(finals, key=lambda one: (one.attention, one.head, str(one.recipe))))


def _final(
    same: Sequence[RunResult],
    tuning: Tuning | None,
    expected: tuple[Expected, ...],
    others: Sequence[Mapping[str, Any]],
) -> FinalModel:
    first, by_seed = same[0], first_runs(same)
    seeds = tuple(reported(tuple(by_seed), tuning))
    return FinalModel(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=first.recipe,
        parameters=first.parameters,
        seeds=seeds,
        failed={s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed},
        epochs={seed: by_seed[seed].epochs[seed] for seed in seeds},
        seconds={seed: by_seed[seed].seconds[seed] for seed in seeds},
        settings=", ".join(_settings(first.recipe, others)),
        expected=expected,
        runs=tuple(run for run in same if set(run.seeds) & set(seeds)),
    )


def _settings(recipe: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Settings that not all recipes around it share, such as ``lr=0.001``."""
    for name in sorted(recipe.keys() - set(UNSPELT)):
        apart = any(str(other.get(name)) != str(recipe[name]) for other in others)
        if apart and recipe[name] is not None:
            yield brief(f"{name}={recipe[name]}")


def _rows_of(final: RunResult, rows: Sequence[Row]) -> list[Row]:
    """The evaluated rows of the recipe: those that differ in what is tested alone.

    Every fold of a cross-validation may have chosen other numbers of those that were tuned; then a
    final model with any of them is one of that row.
    """
    decides = final.select == "val" or bool(final.drawn)
    apart = OF_TEST if decides else (*OF_TEST, "split_seed", "groups")
    found = []
    for row in rows:
        tuned = tuple(TUNED) if row.folds > 1 and _in_all_grids(final, row) else ()
        alike = (row.attention, row.head) == (final.attention, final.head)
        recipes = (run.recipe for run in row.runs)
        if alike and any(same_recipe(final.recipe, one, (*apart, *tuned)) for one in recipes):
            found.append(row)
    return found


def _chosen(final: RunResult, row: Row) -> tuple[str, ...]:
    """What the folds of a row chose of what is tuned; empty where all chose what the model has."""
    folds = {run.recipe.get("fold"): run.recipe for run in row.runs}
    names = [
        name
        for name in TUNED
        if any(recipe.get(name) != final.recipe.get(name) for recipe in folds.values())
    ]
    return tuple(
        f"fold {fold}: " + ", ".join(f"{name}={recipe.get(name)}" for name in names)
        for fold, recipe in sorted(folds.items(), key=lambda one: str(one[0]))
        if names
    )


def _in_all_grids(final: RunResult, row: Row) -> bool:
    values = tuple(float(final.recipe.get(name, 0.0)) for name in TUNED)
    return bool(row.tunings) and all(values in tuning.grid for tuning in row.tunings)


NAMED = 3
"""Evaluated rows that are named for one final model; more are counted."""
LONGEST_REASON = 300


class Expected(NamedTuple):
    """What an evaluated row of the same recipe came to."""

    where: str
    """Which rows were tested, in words."""
    seeds: tuple[int, ...]
    """That finished."""
    mean: float | None
    """Accuracy, a fraction; None if none did."""
    chosen: tuple[str, ...] = ()
    """What was tuned, where not every fold chose what the final model has: of each what it did."""

    def __str__(self) -> str:
        """For people."""
        found = "no seed finished" if self.mean is None else f"{percent(self.mean)}%"
        line = f"{found} on {brief(self.where)}"
        if self.chosen:
            line += f", each of which chose for itself ({brief('; '.join(self.chosen))}), so that "
            line += "it is of the way to choose and not of these numbers"
        return line

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        found = {"tested_on": self.where, "seeds": list(self.seeds), "accuracy_mean": self.mean}
        return found | {"chosen_by_fold": list(self.chosen)}


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalModel:
    """A decoder that learned from all training rows, or all that it was given, over its seeds."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    parameters: dict[str, int]
    seeds: tuple[int, ...]
    """All of them, failed ones included, sorted."""
    failed: dict[int, str]
    epochs: dict[int, int]
    seconds: dict[int, float]
    settings: str
    """What tells it from other final models, and from rows of other recipes."""
    expected: tuple[Expected, ...]
    """Empty where no run of the same recipe was evaluated."""
    runs: tuple[RunResult, ...] = field(repr=False)

    @property
    def seconds_per_seed(self) -> float | None:
        """Mean over the seeds that finished."""
        taken = [self.seconds[seed] for seed in self.seeds if seed not in self.failed]
        return float(np.mean(taken)) if taken else None

    @property
    def train_split(self) -> str:
        """Whose rows are learned from and choose."""
        return str(self.recipe.get("train_split", "train"))

    @property
    def train_rows(self) -> int:
        """How many of these it was given."""
        return sum(self.runs[0].drawn.values()) or self._all_rows

    @property
    def _all_rows(self) -> int:
        return int(self.runs[0].cache["rows"][self.train_split])

    @property
    def label(self) -> str:
        """Decoder, and what tells it from others."""
        name = f"{brief(self.attention)} + {brief(self.head, 60)}"
        return name + (f" ({self.settings})" if self.settings else "")

    def in_words(self) -> str:
        """One line."""
        count, split = f"all {self._all_rows:,} rows", f"'{brief(self.train_split, 40)}'"
        if self.runs[0].drawn:
            count = f"{self.train_rows:,} of {count}"
        rows = f"{count} of {split}"
        rows += ", a part of them held out to choose" if self.select == "val" else ""
        line = f"final model {self.label}, {_seeds(self.seeds)}: not evaluated; it learned from "
        line += f"{rows}; {self._failures() if self.failed else ''}"
        if not self.expected:
            return line + "no run of the same recipe was evaluated, so nothing says how good it is"
        found = ", ".join(map(str, self.expected[:NAMED]))
        more = len(self.expected) - NAMED
        found += f", and {more} more" if more > 0 else ""
        return line + f"evaluated runs of the same recipe have {found}"

    def _failures(self) -> str:
        why = brief(self.failed[min(self.failed)], LONGEST_REASON)
        if len(self.failed) == len(self.seeds):
            return f"all its seeds failed: {why}; "
        return f"seed {spell_numbers(sorted(self.failed))} failed: {why}; "

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "attention": self.attention,
            "head": self.head,
            "evaluated": False,
            "seeds": list(self.seeds),
            "select": self.select,
            "train_split": self.train_split,
            "train_rows": self.train_rows,
            "expected": [found.to_dict() for found in self.expected],
            "parameters": self.parameters,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "recipe": self.recipe,
            "runs": [{"path": run.path.name, "key": run.key} for run in self.runs],
        }


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {spell_numbers(seeds)}"
