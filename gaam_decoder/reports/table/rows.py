"""One row of a table: a mechanism under one recipe, over all its seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.analysis.learned import ParameterRange
from gaam_decoder.reports.table.scores import Floats, Scores
from gaam_decoder.reports.writing import learned_table
from gaam_decoder.reports.writing.unit import DEFAULT, score_of
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Tuning, on_training_rows
from gaam_decoder.stats.scored import interval_by_score
from gaam_decoder.stats.scores._base import Score

Interval = tuple[float, float] | None
BY_FOLD = "by fold"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    """Of a cross-validation without the fold; what was chosen for each fold is ``BY_FOLD``."""
    tunings: tuple[Tuning, ...]
    """How the numbers of the recipe were chosen, of every fold; empty where nothing was."""
    parameters: dict[str, int]
    folds: int
    """1, or as many as a cross-validation has, whose test rows then stand one after the other."""
    repeats: int
    """Cross-validations with other folds each, which stand one after the other."""
    seeds: tuple[int, ...]
    """All seeds, failed ones included, sorted."""
    seconds: dict[int, float]
    partly: tuple[int, ...]
    """Seeds that some folds lack; they count in nothing."""
    failed: dict[int, str]
    epochs: dict[int, int]
    """Epoch that was kept of every seed; over several folds the last of them."""
    learned: dict[str, ParameterRange]
    """Where the learned parameters ended up, by name."""
    repeated: tuple[int, ...]
    """Seeds that more than one run has; ``first_runs`` says which counts."""
    runs: tuple[RunResult, ...] = field(repr=False)
    scores: Scores = field(repr=False)
    score: Score = field(default_factory=lambda: score_of(DEFAULT), repr=False)
    """What is compared."""

    @property
    def interval(self) -> Interval:
        """95% t interval of the accuracy over seeds, as far as an accuracy can be."""
        return stats.within(stats.t_interval(self.scores.accuracy), 0, 1)

    @property
    def two_level(self) -> Interval:
        """95% interval of the accuracy over seeds and test rows; of a fit, over test rows alone."""
        return stats.two_level_interval(self.scores.by_row, without_seeds=self.fitted)

    @property
    def chosen_mean(self) -> float | None:
        """Mean of the score that is compared; None if no seed finished, or there is none."""
        value_S = self.scores.chosen.scored.values
        return float(value_S.mean()) if len(value_S) and np.isfinite(value_S).all() else None

    @property
    def chosen_std(self) -> float | None:
        """Standard deviation of that score over seeds."""
        return None if self.chosen_mean is None else stats.standard_deviation(self._chosen_S)

    @property
    def chosen_interval(self) -> Interval:
        """95% t interval of that score over seeds, as far as it can be."""
        if self.chosen_mean is None:
            return None
        return stats.within(stats.t_interval(self._chosen_S), 0, self.score.highest)

    @property
    def chosen_two_level(self) -> Interval:
        """95% interval of that score over seeds and test rows; of a fit, over test rows alone."""
        scored = self.scores.chosen.scored
        return interval_by_score(self.score, scored, without_seeds=self.fitted)

    @property
    def _chosen_S(self) -> Floats:
        return self.scores.chosen.scored.values

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
    def drawn(self) -> int | None:
        """Training rows that it was given, the fewest of its folds; None is all."""
        return min((sum(run.drawn.values()) for run in self.runs if run.drawn), default=None)

    @property
    def optimistic(self) -> bool:
        """Whether the test rows chose the epoch, or were learned from."""
        return self.select == "test" or self.on_training_rows

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds whose best epoch is the last of the recipe, in some fold at least."""
        late = {seed for run in self.runs for seed in run.still_learning}
        return tuple(seed for seed in self.scores.seeds if seed in late)

    @property
    def at_edge(self) -> tuple[str, ...]:
        """What was chosen at the smallest or largest value that was tried."""
        return tuple(sorted({name for tuning in self.tunings for name in tuning.at_edge}))

    @property
    def undertrained(self) -> bool:
        """Whether a longer training or another rate may do better."""
        return self.too_short or bool(self.at_edge)

    @property
    def too_short(self) -> bool:
        """Whether more seeds have their best epoch last than a plateau gives."""
        late, parts = len(self.still_learning), self.scores.part_right.shape[1]
        return late > 0 and stats.later_than_chance(
            late, len(self.scores.seeds), self.recipe["epochs"], parts
        )

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
            "accuracy_ci95_seeds_and_rows": _listed(self.two_level),
            "macro_f1": {
                "mean": float(scores.macro_f1.mean()) if scores.seeds else None,
                "std": stats.standard_deviation(scores.macro_f1),
                "per_seed": [macro_f1.get(seed) for seed in self.seeds],
            },
            "scores": {
                name: {
                    "mean": float(value_S.mean()) if len(value_S) else None,
                    "std": stats.standard_deviation(value_S),
                    "per_seed": [by_seed.get(seed) for seed in self.seeds],
                }
                for name, value_S in scores.every.items()
                for by_seed in [dict(zip(scores.seeds, value_S.tolist(), strict=True))]
            },
            "majority_vote_accuracy": float(scores.vote_right.mean()) if scores.seeds else None,
            "confusion": scores.confusion.tolist(),
            "parameters": self.parameters,
            "folds": self.folds,
            "repeats": self.repeats,
            "seconds_per_seed": float(np.mean(taken)) if taken else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.still_learning),
            "undertrained": self.undertrained,
            "tuning": [tuning.to_dict() for tuning in self.tunings],
            "seeds_not_in_all_folds": list(self.partly),
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "learned": learned_table.to_dict(self.learned),
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


def _listed(interval: Interval) -> list[float] | None:
    return list(interval) if interval else None
