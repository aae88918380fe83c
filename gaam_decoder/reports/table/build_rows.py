"""From runs on the same test rows to rows of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.table.rows import BY_FOLD, Row
from gaam_decoder.reports.table.scores import Part, repeats_of, scores_of
from gaam_decoder.reports.writing.unit import DEFAULT, score_of
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, Tuning, first_runs, reported


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
