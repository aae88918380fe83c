"""Where final models stand in a report: beside the evaluated runs of the same recipe.

They have no test rows, so they are no rows of a table, and in no statistic, comparison or picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gaam_cache.messages import brief
from gaam_decoder.reports.comparisons.against_baseline import same_recipe
from gaam_decoder.reports.table.final_model import Expected, FinalModel
from gaam_decoder.reports.table.rows import Row
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
