"""Final models: beside the evaluated runs of the same recipe, and in no statistic or picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.rows import Row
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import OF_TEST, TUNED, Tuning, first_runs, reported

NAMED = 3
"""Evaluated rows that are named for one final model; more are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalModel:
    """A decoder that learned from all training rows, or all that it was given, over its seeds."""

    seeds: tuple[int, ...]
    """All that are reported, failed ones included, sorted."""
    failed: dict[int, str]
    expected: tuple[dict[str, Any], ...]
    """What evaluated rows of the same recipe came to, as JSON values; empty where there is none."""
    runs: tuple[RunResult, ...] = field(repr=False)

    def in_words(self) -> str:
        """One line."""
        run, failed, found = self.runs[0], len(self.failed), []
        for one in self.expected[:NAMED]:
            mean = one["accuracy_mean"]
            said = "no seed finished" if mean is None else f"{100 * mean:.1f}%"
            found.append(f"{said} on {brief(one['tested_on'])}")
        found += [f"and {len(self.expected) - NAMED} more"] * (len(self.expected) > NAMED)
        expected = f"evaluated runs of the same recipe have {', '.join(found)}"
        none = "no run of the same recipe was evaluated, so nothing says how good it is"
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {spell_numbers(self.seeds)}"
        return (
            f"final model {brief(run.attention)} + {brief(run.head, 60)}, {seeds}"
            + f" ({failed} failed)" * bool(failed)
            + f": not evaluated; {expected if found else none}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        run, by_seed = self.runs[0], first_runs(self.runs)
        split = str(run.recipe.get("train_split", "train"))
        seconds = {seed: by_seed[seed].seconds[seed] for seed in self.seeds}
        done = [seconds[seed] for seed in self.seeds if seed not in self.failed]
        return {
            "attention": run.attention,
            "head": run.head,
            "evaluated": False,
            "seeds": list(self.seeds),
            "select": run.select,
            "train_split": split,
            "train_rows": sum(run.drawn.values()) or int(run.cache["rows"][split]),
            "expected": list(self.expected),
            "parameters": run.parameters,
            "seconds_per_seed": float(np.mean(done)) if done else None,
            "seconds": list(seconds.values()),
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "recipe": run.recipe,
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
    for run in sorted(runs, key=lambda run: (run.attention, run.head, str(run.recipe))):
        by_key.setdefault(run.key, []).append(run)
    beside: list[list[FinalModel]] = [[] for _ in tested]
    alone: dict[str, list[FinalModel]] = {}
    for same in by_key.values():
        fingerprint, by_seed = same[0].cache["fingerprint"], first_runs(same)
        near = [place for place, (of, *_) in enumerate(tested) if of == fingerprint]
        found = [(at, row) for at in near for row in tested[at][2] if _is_of(same[0], row)]
        seeds = tuple(reported(tuple(by_seed), tunings.get(same[0].key)))
        final = FinalModel(
            seeds=seeds,
            failed={s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed},
            expected=tuple(
                {
                    "tested_on": tested[place][1],
                    "seeds": row.scores.seeds,
                    "accuracy_mean": row.mean,
                }
                for place, row in found
            ),
            runs=tuple(run for run in same if set(run.seeds) & set(seeds)),
        )
        if near:
            beside[found[0][0] if found else near[0]].append(final)
        else:
            alone.setdefault(fingerprint, []).append(final)
    return list(map(tuple, beside)), list(map(tuple, alone.values()))


def _is_of(final: RunResult, row: Row) -> bool:
    """Whether a row has the recipe, but for what is tested.

    Every fold of a cross-validation may have chosen other numbers of those that were tuned; then a
    final model with any of them is one of that row.
    """
    decides = final.select == "val" or bool(final.drawn)
    apart = OF_TEST if decides else (*OF_TEST, "split_seed", "groups")
    values = tuple(float(final.recipe.get(name, 0.0)) for name in TUNED)
    if row.folds > 1 and row.tunings and all(values in tuning.grid for tuning in row.tunings):
        apart = (*apart, *TUNED)
    alike = (row.attention, row.head) == (final.attention, final.head)
    return alike and any(same_recipe(final.recipe, run.recipe, apart) for run in row.runs)
