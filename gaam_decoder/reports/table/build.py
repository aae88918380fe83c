"""From finished runs to the tables of a report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gaam_decoder import stats
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.comparisons import against_baseline
from gaam_decoder.reports.comparisons.against_baseline import against_probe
from gaam_decoder.reports.comparisons.layers import LayerFamily, TableLayers
from gaam_decoder.reports.comparisons.pairs import PairFamily, TablePairs
from gaam_decoder.reports.table import final_models
from gaam_decoder.reports.table.base import NOT_TESTED, Table
from gaam_decoder.reports.table.folds import by_test_rows
from gaam_decoder.reports.table.rows import BY_FOLD, Row
from gaam_decoder.reports.table.scores import Part, repeats_of, scores_of
from gaam_decoder.reports.writing.unit import DEFAULT, score_of
from gaam_decoder.runs.filters import Selection
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, Tuning, choose, first_runs, reported


def build_tables(
    runs: Sequence[RunResult],
    baseline: str | None = None,
    *,
    margin: float | None = None,
    score: str = DEFAULT,
    temperature: bool = False,
    every_candidate: bool = False,
    tune_seeds: Collection[int] | None = None,
    selection: Selection | None = None,
    beside: Sequence[RunResult] = (),
    pairs: str | None = None,
    made: MadeRows | None = None,
) -> list[Table]:
    """Group runs by cache and test rows, and runs that differ in their seeds alone into one row.

    Of runs that differ in numbers of the recipe alone, validation chooses one.

    Args:
        runs: finished runs; those that were not evaluated are beside the rows, and in nothing else.
        baseline: mechanism to compare with; default: ``none`` where it is among the runs.
        margin: largest difference that does not matter, a fraction, or in the unit of the score;
            default: that of the score.
        score: what is compared.
        temperature: fit one for every seed on the rows that chose its epoch.
        every_candidate: choose nothing: every one is a row.
        tune_seeds: seeds that choose; default: those that were trained to, else all.
        selection: what was left out of the runs.
        beside: those that it left out, as far as they are known: they are in no table, but what
            they were compared in counts for Holm, lest a look at the results make p smaller.
        pairs: setting in which the rows of a pair differ; default: the mechanism.
        made: rows that were made already.

    Raises:
        ConfigError: no run of the baseline that was asked for, no such score, or no rows differ in
            that setting.
        CacheError: a run is damaged.
    """
    together = [*runs, *beside]
    tunings: dict[str, Tuning] = {}
    unchosen: tuple[str, ...] = ()
    margin = score_of(score).margin if margin is None else margin
    if not every_candidate:
        runs, tunings, unchosen = choose(runs, tune_seeds)
    found = by_test_rows([run for run in runs if run.evaluated], apart=tunings)
    made = made or MadeRows(score, temperature=temperature)
    row_lists = [made.build(tested.groups, tunings) for tested in found]
    finals = [run for run in runs if not run.evaluated]
    chosen = against_baseline.choose_baseline(
        [row for rows in row_lists for row in rows], baseline, {run.attention for run in finals}
    )
    family: list[Table] = []
    if beside:
        family = build_tables(
            together,
            chosen,
            margin=margin,
            score=score,
            temperature=temperature,
            every_candidate=every_candidate,
            tune_seeds=tune_seeds,
            pairs=pairs,
            made=made,
        )
    compared, num_tests = against_baseline.correct(
        [
            [None] * len(rows) if chosen is None else against_baseline.compare(rows, chosen, margin)
            for rows in row_lists
        ],
        [c for table in family for c in table.comparisons],
    )
    of_layers = LayerFamily(
        row_lists, [table.layers.family for table in family[:1] if table.layers]
    )
    every_pair = PairFamily(
        row_lists,
        pairs,
        margin,
        [table.pairs.family for table in family[:1] if table.pairs],
    )
    out = sum(selection.left_out.values()) if selection else 0
    tables = [
        Table(
            cache=rows[0].runs[0].cache,
            majority_accuracy=tested.majority_accuracy(),
            where=tested.where,
            num_test_rows=rows[0].scores.by_row.shape[1],
            rows=tuple(rows),
            baseline=chosen if any(against_baseline.is_of(row, chosen) for row in rows) else None,
            asked=baseline is not None,
            incomplete=tested.incomplete,
            comparisons=comparisons,
            against_probe=against_probe(rows, margin, _probed(family, tested.where, rows)),
            num_tests=num_tests,
            pairs=TablePairs(every_pair, place),
            layers=TableLayers(of_layers, place),
            uncounted=out - len(beside),
            margin=margin,
            score=score,
            temperature=temperature,
            unchosen=tuple(i for i, row in enumerate(rows) if row.runs[0].key in unchosen),
            selection=selection,
        )
        for place, (tested, rows, comparisons) in enumerate(
            zip(found, row_lists, compared, strict=True)
        )
    ]
    placed, alone = final_models.placed(finals, tables, tunings)
    tables = [replace(table, finals=of) for table, of in zip(tables, placed, strict=True)]
    shared: dict[str, Any] = {
        "where": NOT_TESTED,
        "margin": margin,
        "score": score,
        "selection": selection,
    }
    return tables + [Table(cache=of[0].runs[0].cache, finals=of, **shared) for of in alone]


def _probed(tables: Sequence[Table], where: str, rows: Sequence[Row]) -> list[stats.Claim | None]:
    """What was compared with a probe in all tables of the same cache and test rows."""
    fingerprint = rows[0].runs[0].cache["fingerprint"]
    return [
        claim
        for table in tables
        if table.where == where and table.cache["fingerprint"] == fingerprint
        for claim in table.against_probe
    ]


class MadeRows:
    """Rows of one report, each made once: what filters leave is in what they left something of.

    Args:
        score: that is compared.
        temperature: whether one is fitted, where that can be.
    """

    def __init__(self, score: str = DEFAULT, *, temperature: bool = False) -> None:
        self._score, self._temperature = score, temperature
        self._made: dict[Any, Row] = {}

    def build(self, groups: Sequence[Sequence[Part]], tunings: Mapping[str, Tuning]) -> list[Row]:
        """Rows on the same test rows.

        Args:
            groups: for every row its runs in one part, or in as many as a cross-validation has
                folds; they have to live as long as this.
            tunings: how the recipes of some were chosen, by key.
        """
        return sorted((self._of(parts, tunings) for parts in groups), key=_place)

    def _of(self, parts: Sequence[Part], tunings: Mapping[str, Tuning]) -> Row:
        chosen = [tunings.get(part[0].key) for part in parts]
        by_part = []
        for part, tuning in zip(parts, chosen, strict=True):
            runs = first_runs(part)
            by_part.append({seed: runs[seed] for seed in reported(tuple(runs), tuning)})
        key = tuple(
            (tuple(map(id, part)), tuple(runs)) for part, runs in zip(parts, by_part, strict=True)
        )
        row = self._made.get(key)
        if row is None:
            row = self._made[key] = _row(parts, by_part, self._score, self._temperature)
        of = tuple(tuning for tuning in chosen if tuning is not None)
        return replace(row, tunings=of) if of else row


def _place(row: Row) -> tuple[Any, ...]:
    """Where a row stands; those on some layers come after those on all, more rows after fewer."""
    on_some = row.recipe.get("layers") is not None
    size = math.inf if row.drawn is None else row.drawn
    return on_some, row.attention, row.head, row.select, size, str(row.recipe)


def _row(
    parts: Sequence[Part], by_part: Sequence[dict[int, RunResult]], score: str, temperature: bool
) -> Row:
    """A row of runs, and those of them that report each seed; how they were chosen is not in it."""
    first, whole = parts[0][0], len(parts) == 1
    everywhere = set.intersection(*map(set, by_part))
    failed: dict[int, str] = {}
    for part, runs in zip(parts, by_part, strict=True):
        where = "" if whole else f"{_which(part[0].recipe)}: "
        for seed in everywhere & {seed for seed, run in runs.items() if seed in run.failed}:
            failed.setdefault(seed, where + runs[seed].failed[seed])
    repeated = {
        seed
        for part in parts
        for seed, count in Counter(seed for run in part for seed in run.seeds).items()
        if count > 1
    }
    repeats = repeats_of(parts)
    counted = [[run for run in part if set(run.seeds) & everywhere] or part for part in parts]
    return Row(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=first.recipe if whole else _of_all([part[0].recipe for part in parts]),
        tunings=(),
        parameters=first.parameters,
        folds=len(parts) // repeats,
        repeats=repeats,
        seeds=tuple(sorted(everywhere)),
        seconds={seed: sum(runs[seed].seconds[seed] for runs in by_part) for seed in everywhere},
        partly=tuple(sorted(set.union(*map(set, by_part)) - everywhere)),
        failed=failed,
        epochs={seed: max(runs[seed].epochs[seed] for runs in by_part) for seed in everywhere},
        learned=learned_ranges(counted[0]) if whole else {},
        repeated=tuple(sorted(repeated)),
        runs=tuple(run for part in counted for run in part),
        scores=scores_of(parts, everywhere, score, temperature=temperature),
        score=score_of(score),
    )


def _which(recipe: dict[str, Any]) -> str:
    seed = recipe.get("split_seed")
    return f"fold {recipe['fold']}" + (f" of split seed {seed}" if seed else "")


def _of_all(recipes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The recipe of a whole cross-validation."""
    apart: dict[str, Any] = {
        n: BY_FOLD for n in TUNED if len({recipe.get(n) for recipe in recipes}) > 1
    }
    if len({recipe.get("split_seed") for recipe in recipes}) > 1:
        apart["split_seed"] = ", ".join(
            map(str, sorted({int(recipe["split_seed"]) for recipe in recipes}))
        )
    return recipes[0] | apart | {"fold": None}
