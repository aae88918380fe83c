"""Final models: named beside the evaluated runs of the same recipe, and in no number of any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.unit import percent
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import OF_TEST, TUNED, Tuning, first_runs, reported


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalModel:
    """A decoder that learned from all training rows, or all that it was given, over its seeds."""

    runs: tuple[RunResult, ...]
    seeds: tuple[int, ...]
    failed: dict[int, str]
    expected: tuple[tuple[str, Row], ...]
    """Evaluated rows of the same recipe, each behind what tests it."""

    def in_words(self) -> str:
        """One line."""
        found = [f"{percent(row.mean)}% on {brief(where)}" for where, row in self.expected]
        failed = f" ({len(self.failed)} failed)" * bool(self.failed)
        return (
            f"final model {brief(self.runs[0].attention)} + {brief(self.runs[0].head, 60)}, seeds "
            f"{spell_numbers(self.seeds)}{failed}: not evaluated; evaluated runs of the same "
            f"recipe: {', '.join(found) or 'none, so that nothing says how good it is'}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        run = self.runs[0]
        names = ("attention", "head", "select", "parameters", "recipe")
        return {name: getattr(run, name) for name in names} | {
            "evaluated": False,
            "seeds": list(self.seeds),
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "expected": [
                {"tested_on": where, "accuracy_mean": row.mean} for where, row in self.expected
            ],
            "runs": [{"path": run.path.name, "key": run.key} for run in self.runs],
        }


def final_models(
    runs: Sequence[RunResult],
    rows: Iterable[tuple[str, Row]],
    tunings: Mapping[str, Tuning],
) -> tuple[FinalModel, ...]:
    """Those of one cache, and what evaluated rows of it came to, each behind what tests it."""
    by_key, tested, found = dict[str, list[RunResult]](), list(rows), []
    for run in sorted(runs, key=lambda run: (run.attention, run.head, str(run.recipe))):
        by_key.setdefault(run.key, []).append(run)
    for same in by_key.values():
        by_seed = first_runs(same)
        seeds = tuple(reported(tuple(by_seed), tunings.get(same[0].key)))
        model = FinalModel(
            runs=tuple(run for run in same if set(run.seeds) & set(seeds)),
            seeds=seeds,
            failed={s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed},
            expected=tuple((where, row) for where, row in tested if _is_of(same[0], row)),
        )
        found.append(model)
    return tuple(found)


def _is_of(final: RunResult, row: Row) -> bool:
    """Whether a row has the recipe, but for what is tested; of folds any rate that was tried."""
    decides = final.select == "val" or bool(final.drawn)
    apart = OF_TEST if decides else (*OF_TEST, "split_seed", "groups")
    values = tuple(float(final.recipe.get(name, 0.0)) for name in TUNED)
    if row.folds > 1 and row.tunings and all(values in tuning.grid for tuning in row.tunings):
        apart = (*apart, *TUNED)
    alike = (row.attention, row.head) == (final.attention, final.head)
    return alike and any(same_recipe(final.recipe, run.recipe, apart) for run in row.runs)
