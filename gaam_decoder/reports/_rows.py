"""One row of a table: a mechanism under one recipe, over all its seeds.

S finished seeds, R resamples of the test rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.analysis.learned import ParameterRange, learned_ranges
from gaam_decoder.reports import _learned
from gaam_decoder.reports._scores import Part, Scores, scores_of
from gaam_decoder.runs.counting import first_runs, on_training_rows
from gaam_decoder.runs.result import RunResult

Interval = tuple[float, float] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    parameters: dict[str, int]
    folds: int
    """1, or as many as a cross-validation has, whose test rows then stand one after the other."""
    seeds: tuple[int, ...]
    """All seeds, failed ones included, sorted."""
    seconds: dict[int, float]
    failed: dict[int, str]
    epochs: dict[int, int]
    """Epoch that was kept of every seed; over several folds the last of them."""
    learned: dict[str, ParameterRange]
    """Where the learned parameters ended up, by name."""
    repeated: tuple[int, ...]
    """Seeds that more than one run has; the first run, by folder name, counts."""
    runs: tuple[RunResult, ...] = field(repr=False)
    scores: Scores = field(repr=False)
    resampled: NDArray[np.float32] = field(repr=False)
    """Accuracy of every finished seed on resamples of the test rows, (S, R)."""

    @property
    def interval(self) -> Interval:
        """95% t interval of the accuracy over seeds, as far as an accuracy can be."""
        return stats.within(stats.t_interval(self.scores.accuracy), 0, 1)

    @property
    def bootstrap(self) -> Interval:
        """95% interval of the accuracy over seeds and test rows, as far as an accuracy can be.

        Of a fit, which any seed would repeat, over test rows alone.
        """
        resampled = self.resampled.repeat(2, axis=0) if self.fitted else self.resampled
        return stats.within(stats.two_level_interval(resampled), 0, 1)

    @property
    def on_training_rows(self) -> bool:
        """Whether it is tested on the rows that it learned from."""
        return on_training_rows(self.runs[0].recipe)  # of a fold, which the row's no longer names

    @property
    def fitted(self) -> bool:
        """Whether its head was fitted at once, without steps and seeds."""
        return bool(self.runs[0].fit)

    @property
    def shuffled(self) -> bool:
        """Whether it learned from shuffled labels: a check, which is compared with nothing."""
        return self.runs[0].shuffled

    @property
    def optimistic(self) -> bool:
        """Whether the test rows chose the epoch, or were learned from."""
        return self.select == "test" or self.on_training_rows

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds whose best epoch is the last of the recipe."""
        if self.select == "last":
            return ()
        last = self.recipe.get("epochs")
        return tuple(seed for seed in self.scores.seeds if self.epochs[seed] == last)

    @property
    def mean(self) -> float | None:
        """Mean accuracy; None if no seed finished."""
        return float(self.scores.accuracy.mean()) if self.scores.seeds else None

    @property
    def importance(self) -> Importance | None:
        """Of every layer; None where the mechanism has no attention map, or over several folds."""
        return importance_of(self.runs) if self.folds == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values; statistics are over the seeds that finished."""
        scores = self.scores
        accuracy = dict(zip(scores.seeds, scores.accuracy.tolist(), strict=True))
        macro_f1 = dict(zip(scores.seeds, scores.macro_f1.tolist(), strict=True))
        taken = [self.seconds[seed] for seed in scores.seeds]
        importance = self.importance
        return {
            "attention": self.attention,
            "head": self.head,
            "seeds": list(self.seeds),
            "select": self.select,
            "optimistic": self.optimistic,
            "tested_on_training_rows": self.on_training_rows,
            "accuracy": {
                "mean": self.mean,
                "std": stats.standard_deviation(scores.accuracy),
                "ci95": _listed(self.interval),
                "per_seed": [accuracy.get(seed) for seed in self.seeds],
            },
            "accuracy_bootstrap_ci95": _listed(self.bootstrap),
            "macro_f1": {
                "mean": float(scores.macro_f1.mean()) if scores.seeds else None,
                "std": stats.standard_deviation(scores.macro_f1),
                "per_seed": [macro_f1.get(seed) for seed in self.seeds],
            },
            "majority_vote_accuracy": float(scores.vote_right.mean()) if scores.seeds else None,
            "confusion": scores.confusion.tolist(),
            "parameters": self.parameters,
            "folds": self.folds,
            "seconds_per_seed": float(np.mean(taken)) if taken else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.still_learning),
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "learned": _learned.to_dict(self.learned),
            "importance": importance.to_dict() if importance else None,
            "recipe": self.recipe,
            "runs": [
                {
                    "path": run.path.name,
                    "key": run.key,
                    "environment": run.environment,
                    "engine": run.engine,
                    **({"fit": run.fit} if run.fit else {}),
                }
                for run in self.runs
            ],
        }


def build_rows(groups: Sequence[Sequence[Part]]) -> list[Row]:
    """Rows on the same test rows.

    Args:
        groups: for every row its runs in one part, or in as many as a cross-validation has folds.
    """
    scores = [scores_of(parts) for parts in groups]
    resampled_TR = stats.resample_rows(np.concatenate([score.right for score in scores]))
    ends = np.cumsum([len(score.seeds) for score in scores])[:-1]
    split = np.split(resampled_TR, ends)
    return sorted(map(_row, groups, scores, split), key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    """Where a row stands; decoders on some of the layers come after those on all."""
    on_some = row.recipe.get("layers") is not None
    return on_some, row.attention, row.head, row.select, str(row.recipe)


def _row(parts: Sequence[Part], scores: Scores, resampled_SR: NDArray[np.float32]) -> Row:
    first, whole = parts[0][0], len(parts) == 1
    by_part = [first_runs(part) for part in parts]
    everywhere = set.intersection(*map(set, by_part))
    failed: dict[int, str] = {}
    for part, runs in zip(parts, by_part, strict=True):
        where = "" if whole else f"fold {part[0].recipe['fold']}: "
        for seed in everywhere & {seed for seed, run in runs.items() if seed in run.failed}:
            failed.setdefault(seed, where + runs[seed].failed[seed])
    repeated = {
        seed
        for part in parts
        for seed, count in Counter(seed for run in part for seed in run.seeds).items()
        if count > 1
    }
    return Row(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=first.recipe if whole else first.recipe | {"fold": None},
        parameters=first.parameters,
        folds=len(parts),
        seeds=tuple(sorted(everywhere)),
        seconds={seed: sum(runs[seed].seconds[seed] for runs in by_part) for seed in everywhere},
        failed=failed,
        epochs={seed: max(runs[seed].epochs[seed] for runs in by_part) for seed in everywhere},
        learned=learned_ranges(parts[0]) if whole else {},
        repeated=tuple(sorted(repeated)),
        runs=tuple(run for part in parts for run in part),
        scores=scores,
        resampled=resampled_SR,
    )


def _listed(interval: Interval) -> list[float] | None:
    return list(interval) if interval else None
