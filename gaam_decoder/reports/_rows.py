"""One row of a table: a mechanism under one recipe, over all its seeds.

S finished seeds, N test rows, C classes, R resamples of the test rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.importance import Importance, importance_of
from gaam_decoder.learned import ParameterRange, learned_ranges
from gaam_decoder.reports import _learned
from gaam_decoder.runs import RunResult

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the finished seeds of a row predicted, in the order of ``seeds``."""

    seeds: tuple[int, ...]
    right: NDArray[np.bool_]
    """Whether each seed is right on each test row, (S, N)."""
    accuracy: Floats
    macro_f1: Floats
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C)."""
    vote_right: NDArray[np.bool_]
    """Whether the class that most seeds predict is right, (N,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    parameters: dict[str, int]
    seeds: tuple[int, ...]
    """All seeds, failed ones included, sorted."""
    seconds: dict[int, float]
    failed: dict[int, str]
    learned: dict[str, ParameterRange]
    """Where the learned parameters ended up, by name."""
    repeated: tuple[int, ...]
    """Seeds that more than one run has; the first run, by folder name, counts."""
    runs: tuple[RunResult, ...] = field(repr=False)
    scores: Scores = field(repr=False)
    resampled: NDArray[np.float32] = field(repr=False)
    """Accuracy of every finished seed on resamples of the test rows, (S, R)."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% t interval of the accuracy over seeds."""
        return stats.t_interval(self.scores.accuracy)

    @property
    def bootstrap(self) -> tuple[float, float] | None:
        """95% interval of the accuracy over seeds and test rows."""
        return stats.two_level_interval(self.resampled)

    @property
    def mean(self) -> float | None:
        """Mean accuracy; None if no seed finished."""
        return float(self.scores.accuracy.mean()) if self.scores.seeds else None

    @property
    def importance(self) -> Importance | None:
        """Of every layer; None where the mechanism has no attention map. Read when asked for."""
        return importance_of(self.runs)

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
            "optimistic": self.select == "test",
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
            "seconds_per_seed": float(np.mean(taken)) if taken else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "learned": _learned.to_dict(self.learned),
            "importance": importance.to_dict() if importance else None,
            "recipe": self.recipe,
            "runs": [
                {"path": run.path.name, "key": run.key, "environment": run.environment}
                for run in self.runs
            ],
        }


def build_rows(groups: Sequence[Sequence[RunResult]]) -> list[Row]:
    """Rows of runs on the same test rows; the runs of one group differ in their seeds alone."""
    scores = [_scores(runs) for runs in groups]
    right_TN = np.concatenate([score.right for score in scores])
    resampled_TR = stats.resample_rows(right_TN)
    ends = np.cumsum([len(score.seeds) for score in scores])[:-1]
    rows = [
        _row(*parts) for parts in zip(groups, scores, np.split(resampled_TR, ends), strict=True)
    ]
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    """Where a row stands; decoders on some of the layers come after those on all."""
    on_some = row.recipe.get("layers") is not None
    return on_some, row.attention, row.head, row.select, str(row.recipe)


def _row(runs: Sequence[RunResult], scores: Scores, resampled_SR: NDArray[np.float32]) -> Row:
    seeds = [seed for run in runs for seed in run.seeds]
    seconds: dict[int, float] = {}
    failed: dict[int, str] = {}
    for run in reversed(runs):
        seconds |= run.seconds
        failed = {seed: why for seed, why in failed.items() if seed not in run.seeds} | run.failed
    first = runs[0]
    return Row(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=first.recipe,
        parameters=first.parameters,
        seeds=tuple(sorted(set(seeds))),
        seconds=seconds,
        failed=failed,
        learned=learned_ranges(runs),
        repeated=tuple(sorted({seed for seed in seeds if seeds.count(seed) > 1})),
        runs=tuple(runs),
        scores=scores,
        resampled=resampled_SR,
    )


def _scores(runs: Sequence[RunResult]) -> Scores:
    classes = len(runs[0].cache["class_names"])
    labels = runs[0].labels
    taken: set[int] = set()
    by_seed: dict[int, NDArray[np.float32]] = {}
    for run in runs:
        logits = run.finished_logits()
        by_seed |= {
            seed: logits[index] for index, seed in enumerate(run.finished) if seed not in taken
        }
        taken.update(run.seeds)
    seeds = tuple(sorted(by_seed))
    empty = np.zeros((0, len(labels), classes), np.float32)
    logits_SNC = np.stack([by_seed[seed] for seed in seeds]) if seeds else empty
    predicted_SN = logits_SNC.argmax(-1)
    right_SN = predicted_SN == labels
    confusions = [stats.confusion(predicted_N, labels, classes) for predicted_N in predicted_SN]
    votes_N = (
        stats.majority_votes(logits_SNC, predicted_SN) if seeds else np.zeros(len(labels), np.int64)
    )
    return Scores(
        seeds=seeds,
        right=right_SN,
        accuracy=right_SN.mean(1, dtype=np.float64),
        macro_f1=np.array([stats.f1_of_confusion(count_CC) for count_CC in confusions]),
        confusion=sum(confusions, np.zeros((classes, classes), np.int64)),
        vote_right=votes_N == labels,
    )


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return list(interval) if interval else None
