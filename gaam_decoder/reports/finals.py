"""Final models: beside the evaluated runs of the same recipe.

They have no test rows, so they are no rows of a table, and in no statistic, comparison or picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.rows import Row
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import OF_TEST, TUNED, Tuning, first_runs, reported

UNSPELT = (*OF_TEST, "select", "allow_train_as_test", "shuffle_labels")
"""Settings that are said in other words, or play no part."""
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
        found = "no seed finished" if self.mean is None else f"{100 * self.mean:.1f}%"
        each = f", each of which chose for itself ({brief('; '.join(self.chosen))})"
        return f"{found} on {brief(self.where)}" + each * bool(self.chosen)

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
        return sum(self.runs[0].drawn.values()) or int(self.runs[0].cache["rows"][self.train_split])

    @property
    def label(self) -> str:
        """Decoder, and what tells it from others."""
        name = f"{brief(self.attention)} + {brief(self.head, 60)}"
        return name + (f" ({self.settings})" if self.settings else "")

    def in_words(self) -> str:
        """One line."""
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {spell_numbers(self.seeds)}"
        line = f"final model {self.label}, {seeds}: not evaluated; "
        if self.failed:
            who = f"seed {spell_numbers(sorted(self.failed))}"
            who = "all its seeds" if len(self.failed) == len(self.seeds) else who
            line += f"{who} failed: {brief(self.failed[min(self.failed)], LONGEST_REASON)}; "
        if not self.expected:
            return line + "no run of the same recipe was evaluated, so nothing says how good it is"
        found = ", ".join(map(str, self.expected[:NAMED]))
        more = len(self.expected) - NAMED
        found += f", and {more} more" if more > 0 else ""
        return line + f"evaluated runs of the same recipe have {found}"

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


def placed(
    runs: Sequence[RunResult],
    tested: Sequence[tuple[str, str, Sequence[Row]]],
    tunings: Mapping[str, Tuning],
) -> tuple[list[tuple[FinalModel, ...]], list[tuple[FinalModel, ...]]]:
    """Final models beside the first table that has a row of the same recipe, or of the same cache.

    ``tested`` has of every table the fingerprint, which rows test it, and its rows. Returned are
    the final models of every table, and those of every cache that has none.
    """
    by_key: dict[str, list[RunResult]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    beside: list[list[FinalModel]] = [[] for _ in tested]
    alone: dict[str, list[FinalModel]] = {}
    for same in by_key.values():
        first, by_seed = same[0], first_runs(same)
        near = [place for place, (of, *_) in enumerate(tested) if of == first.cache["fingerprint"]]
        found = [(place, row) for place in near for row in _rows_of(first, tested[place][2])]
        around = [of[0] for of in by_key.values()]
        around += [row.runs[0] for place in near for row in tested[place][2]]
        # a fit has no settings of steps
        others = [run.recipe for run in around if bool(run.fit) == bool(first.fit)]
        seeds = tuple(reported(tuple(by_seed), tunings.get(first.key)))
        final = FinalModel(
            attention=first.attention,
            head=first.head,
            select=first.select,
            recipe=first.recipe,
            parameters=first.parameters,
            seeds=seeds,
            failed={s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed},
            seconds={seed: by_seed[seed].seconds[seed] for seed in seeds},
            settings=", ".join(
                brief(f"{name}={value}")
                for name, value in sorted(first.recipe.items())
                if name not in UNSPELT
                and value is not None
                and any(str(other.get(name)) != str(value) for other in others)
            ),
            expected=tuple(
                Expected(tested[place][1], row.scores.seeds, row.mean, _chosen(first, row))
                for place, row in found
            ),
            runs=tuple(run for run in same if set(run.seeds) & set(seeds)),
        )
        if near:
            beside[found[0][0] if found else near[0]].append(final)
        else:
            alone.setdefault(first.cache["fingerprint"], []).append(final)

    def in_order(of: Sequence[FinalModel]) -> tuple[FinalModel, ...]:
        return tuple(sorted(of, key=lambda one: (one.attention, one.head, str(one.recipe))))

    return [in_order(of) for of in beside], [in_order(of) for of in alone.values()]


def _rows_of(final: RunResult, rows: Sequence[Row]) -> list[Row]:
    """The evaluated rows of the recipe: those that differ in what is tested alone.

    Every fold of a cross-validation may have chosen other numbers of those that were tuned; then a
    final model with any of them is one of that row.
    """
    decides = final.select == "val" or bool(final.drawn)
    apart = OF_TEST if decides else (*OF_TEST, "split_seed", "groups")
    values = tuple(float(final.recipe.get(name, 0.0)) for name in TUNED)
    found = []
    for row in rows:
        in_grids = bool(row.tunings) and all(values in tuning.grid for tuning in row.tunings)
        names = (*apart, *TUNED) if row.folds > 1 and in_grids else apart
        alike = (row.attention, row.head) == (final.attention, final.head)
        if alike and any(same_recipe(final.recipe, run.recipe, names) for run in row.runs):
            found.append(row)
    return found


def _chosen(final: RunResult, row: Row) -> tuple[str, ...]:
    """What the folds of a row chose of what is tuned; empty where all chose what the model has."""
    folds = {str(run.recipe.get("fold")): run.recipe for run in row.runs}
    recipes = folds.values()
    names = [n for n in TUNED if any(one.get(n) != final.recipe.get(n) for one in recipes)]
    return tuple(
        f"fold {fold}: " + ", ".join(f"{name}={recipe.get(name)}" for name in names)
        for fold, recipe in sorted(folds.items())
        if names
    )
