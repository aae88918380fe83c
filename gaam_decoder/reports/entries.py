"""An entry of a report: one mechanism under one recipe over all its seeds.

An entry carries the scores of its predictions on the test rows. S finished seeds, P
parts (1, or the folds of cross-validations), N test rows, C classes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Tuning, mean_validation
from gaam_decoder.specs import Settings
from gaam_decoder.stats.calibration import CalibrationBins
from gaam_decoder.stats.choice import SimulatedChoices
from gaam_decoder.stats.scored import Scored, interval_by_score
from gaam_decoder.stats.scores.base import Interval, Score
from gaam_decoder.tasks import Task

Floats = NDArray[np.float64]
EntryKey = tuple[tuple[RunResult, ...], tuple[int, ...], tuple[SimulatedChoices, ...]]
"""Runs, seeds and simulated choices of an entry."""

BY_FOLD = "by fold"
DEFAULT_SCORE = "accuracy"
MACRO_F1 = "macro-f1"
# A choice is sure if this share of simulated validation sets makes the same one.
SURE_SHARE = 0.95
# Stands behind the name of a score if its probabilities were scaled.
SCALED_SUFFIX = ", temperature fitted"


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredScore:
    """A score of the finished seeds of an entry."""

    score: Score
    scored: Scored
    """Its value of every seed, and of every test row."""
    is_fitted: bool
    """Whether the head was fitted at once, so that one model stands for all seeds."""
    mean: float | None  # None without a finished seed, or without such a score
    std: float | None  # over seeds
    seeds_interval: Interval
    """95% t interval of the mean over seeds, within the range of the score."""

    @cached_property
    def seeds_rows_interval(self) -> Interval:
        """95% interval of the mean over seeds and test rows.

        Of a head that is fitted at once, and so has no seeds, over test rows alone.
        """
        return interval_by_score(self.score, self.scored, without_seeds=self.is_fitted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An entry minus another entry over the finished seeds of both, as fractions."""

    baseline: str  # mechanism of the other entry
    seeds: tuple[int, ...]
    dropped_seeds: tuple[int, ...]  # seeds that one of the two lacks, or that failed
    claim: stats.Claim
    fold_test: stats.CorrectedT | None
    """Corrected t test over the folds of a cross-validation: the difference that
    another training set would give. None without folds."""
    grids_differ: bool
    """Whether the two entries were tuned over different candidates."""

    def to_dict(self) -> dict[str, object]:
        """JSON values.

        ``other_training_sets`` is the test over folds, which says what other training
        sets would give; ``other_grid`` says that the tuning candidates differ.
        """
        fold_test = self.fold_test
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped_seeds),
            **claim_values(self.claim),
            "other_training_sets": (None if fold_test is None else fold_test.to_dict()),
            "other_grid": self.grids_differ,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """Give a claim, the result of one comparison of two decoders, as JSON values."""
    these_rows = claim.on_these_rows
    sign_flip = these_rows.sign_flip
    return {
        "difference": claim.difference,
        "std_error": _std_error(claim),
        "verdict": claim.verdict,
        "significant": claim.significant,
        "margin": claim.margin,
        "p": claim.p,
        "p_holm": claim.p_holm,
        "p_equivalent": claim.p_equivalent,
        "p_equivalent_holm": claim.p_equivalent_holm,
        "num_tests": claim.num_tests,
        "num_groups": claim.num_groups,
        "seeds_to_decide": claim.seeds_to_decide,
        "rows_to_decide": claim.rows_to_decide,
        "groups_to_decide": claim.groups_to_decide,
        "difference_points": 100 * claim.difference,
        "within_margin": claim.negligible,
        "ci95_seeds_and_rows": claim.interval,
        "ci95_corrected": claim.interval_corrected,
        "on_these_test_rows": {
            "verdict": these_rows.verdict,
            "std": these_rows.std,
            "ci95": these_rows.interval,
            "p_sign_flip": sign_flip.p if sign_flip else None,
            "p_sign_flip_exact": sign_flip.exact if sign_flip else None,
            "p_equivalent": these_rows.p_equivalent,
            "minimum_detectable_difference": these_rows.detectable,
        },
    }


def _std_error(claim: stats.Claim) -> float | None:
    """Standard error of a difference over seeds and test rows, or groups of rows.

    None where no test over the rows was possible.
    """
    if claim.test_over_rows is None:
        return None
    return math.sqrt(claim.test_over_rows.variance)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EntryScores:
    """The scores of an entry over the seeds that finished in all its parts."""

    finished: tuple[int, ...]  # seeds that finished in every fold: the S below
    task: Task
    default_score: MeasuredScore  # of its task: of classes, the accuracy
    compared_score: MeasuredScore  # the score that the table compares
    contribution_SN: NDArray[Any]
    """What each test row contributes to the default score of a seed, (S, N): of
    classes, whether the seed is right."""
    score_SP: Floats  # the compared score of every seed on every part; NaN: undefined
    values_by_score: dict[str, Floats]  # name of a score -> values, (S,), or NaN
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C); else (0, 0)."""
    vote_accuracy: float | None  # of the class that most seeds predict
    trivial_score: float
    """Default score of the prediction that looks at no row: of classes, the accuracy of
    the most frequent class of the training rows; see ``Task.baseline_in_words``."""
    labels_per_class: NDArray[np.int64]  # test rows, (C,); else (0,)
    temperatures: Floats | None
    """Divisors of the logits in scores of probabilities, (S, P)."""
    calibration_bins: CalibrationBins  # of rows of all seeds together


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Entry(EntryScores):
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: Settings
    """Of folds without the fold; a setting tuned in each fold is ``BY_FOLD``."""
    code: str
    """File of a mechanism from a plugin and digest of this file; else empty."""
    tunings: tuple[Tuning, ...]
    """Tuning of every fold; empty if nothing was tuned."""
    simulated_choices: tuple[SimulatedChoices, ...]
    """What each tuning would choose on other validation rows, if the runs record it."""
    parameters: dict[str, int]
    folds: int  # their test rows stand one after the other; or 1
    repeats: int  # cross-validations with other folds each, one after the other
    seeds: tuple[int, ...]  # seeds that every fold has, with failed ones, sorted
    seconds: dict[int, float]
    failed: dict[int, str]
    fitted_at_once: bool  # whether the head was fitted at once, without steps and seeds
    labels_shuffled: bool  # whether labels were shuffled: a check, never compared
    on_training_rows: bool  # whether the test rows are the training rows
    num_drawn_rows: int | None
    """Number of training rows drawn, the fewest of the folds; None: all."""
    seeds_still_learning: tuple[int, ...]
    """Finished seeds whose best epoch is the last one, in any fold."""
    training_too_short: bool  # whether these are more seeds than a plateau gives
    settings_at_edge: frozenset[str]
    """Tuned settings whose smallest or largest candidate won, not by chance."""
    runs: tuple[RunResult, ...]
    name: str = ""
    """Mechanism; and head, selection or check if these distinguish it from others."""
    settings: str = ""
    """Settings that the entries of the table do not share, such as ``lr=0.001``."""
    label: str = ""  # the name, with settings if another entry has the same name
    comparison: Comparison | None = None  # with its counterpart of the baseline
    probe_comparison: Comparison | None = (
        None  # with the linear probe on the same states
    )
    tuning_failed: bool = (
        False  # whether it is a candidate of a tuning without a winner
    )
    is_shown: bool = True  # whether it is among the best entries that the user wants
    is_candidate: bool = False
    """Whether it stands beside other candidates of the same tuning."""
    grouped_by: tuple[str, ...] = ()  # relations that put test rows together
    encoder: str = ""  # name of its encoder, where encoders are compared
    shared_name: str = ""
    """Name of its mechanism on the states of every encoder, where these are
    compared."""

    @property
    def key(self) -> EntryKey:
        """What identifies an entry: those with the same key have the same numbers."""
        return self.runs, self.seeds, self.simulated_choices

    @property
    def mechanism(self) -> str:
        """The name of the mechanism without its options."""
        return self.attention.partition(":")[0]

    @property
    def is_optimistic(self) -> bool:
        """Whether the test rows selected the epoch, or were training rows."""
        return self.select == "test" or self.on_training_rows

    @property
    def train_rows(self) -> float:
        """Number of training and validation rows, see ``Scored.train_rows``."""
        return self.default_score.scored.train_rows

    @property
    def has_unsure_choice(self) -> bool:
        """Whether other validation rows might have selected another candidate."""
        return any(is_unsure(choices) for choices in self.simulated_choices)

    @property
    def is_probe(self) -> bool:
        """Whether it is the linear probe: ``none`` with this head of its task."""
        has_probe_head = self.head.partition(":")[0] == self.task.probe_head
        return self.attention == "none" and has_probe_head and self.fitted_at_once

    @property
    def penalty_at_edge(self) -> bool:
        """Whether a fit selected the smallest or largest penalty of its grid."""
        return any(run.fit and run.fit.edge for run in self.runs)

    @property
    def is_undertrained(self) -> bool:
        """Whether a longer training or another rate may do better."""
        return self.training_too_short or bool(self.settings_at_edge)

    @property
    def validation_score(self) -> float | None:
        """Mean validation accuracy over seeds and folds; None if a seed has none."""
        runs_by_fold: dict[tuple[str, int], list[RunResult]] = {}
        for run in self.runs:
            fold = (str(run.recipe.fold), split_seed_of(run))
            runs_by_fold.setdefault(fold, []).append(run)

        means: list[float] = []
        for runs in runs_by_fold.values():
            mean_accuracy = mean_validation(runs, self.finished).accuracy
            if mean_accuracy is None:
                return None
            means.append(mean_accuracy)
        return math.fsum(means) / len(means) if means else None

    @property
    def parameter_ranges(self) -> dict[str, dict[str, Any]]:
        """Ranges of the learned parameters by name; empty for several folds."""
        return learned_ranges(self.runs) if self.score_SP.shape[1] == 1 else {}

    @property
    def importance(self) -> Importance | None:
        """Importance of every layer; None without attention map, or for folds."""
        return importance_of(self.runs) if self.folds == 1 else None

    @property
    def relative_importance(self) -> Importance | None:
        """The importance of layers, if the entry reads several."""
        importance = self.importance
        if importance is None or len(importance.layers) < 2:
            return None
        return importance

    @property
    def temperature(self) -> dict[str, Any] | None:
        """Temperatures as JSON values, in the order of the seeds."""
        if self.temperatures is None:
            return None
        return {
            # no mean: a seed whose rows fit no temperature has a huge one
            "median": float(np.median(self.temperatures)),
            "lowest": float(self.temperatures.min()),
            "highest": float(self.temperatures.max()),
            "per_seed": self.temperatures.tolist(),
        }

    def to_dict(self) -> dict[str, object]:
        """JSON values; statistics are over the finished seeds."""
        identity = {
            "attention": self.attention,
            "head": self.head,
            "select": self.select,
            "optimistic": self.is_optimistic,
            "parameters": self.parameters,
            "folds": self.folds,
            "repeats": self.repeats,
            "undertrained": self.is_undertrained,
            "learned": self.parameter_ranges,
            "recipe": self.recipe,
            "temperature": self.temperature,
            "seeds": list(self.seeds),
            "tested_on_training_rows": self.on_training_rows,
        }
        return identity | self._score_values() | self._training_values()

    def _score_values(self) -> dict[str, object]:
        """The scores of the entry as JSON values; their keys depend on the task."""
        default_score = self.default_score
        value_S = default_score.scored.values
        scores = {
            name: self._summary(values) for name, values in self.values_by_score.items()
        }
        if not self.task.has_classes:
            return {
                "task": self.task.name,
                "score": {
                    **self._summary(value_S),
                    "ci95": default_score.seeds_interval,
                },
                "score_ci95_seeds_and_rows": default_score.seeds_rows_interval,
                "scores": scores,
            }
        return {
            "accuracy": {
                **_mean_and_std(value_S),
                "ci95": default_score.seeds_interval,
                "per_seed": self._per_seed(value_S),
            },
            "accuracy_ci95_seeds_and_rows": default_score.seeds_rows_interval,
            "macro_f1": self._summary(self.values_by_score[MACRO_F1]),
            "scores": scores,
            "majority_vote_accuracy": self.vote_accuracy,
            "confusion": self.confusion.tolist(),
        }

    def _training_values(self) -> dict[str, object]:
        """Training, tuning, comparisons and runs of the entry as JSON values."""
        seconds = [self.seconds[seed] for seed in self.finished]
        failed = sorted(self.failed.items())
        importance = self.importance
        return {
            "seconds_per_seed": float(np.mean(seconds)) if seconds else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.seeds_still_learning),
            "tuning": [tuning.to_dict() for tuning in self.tunings],
            "choice": [choices._asdict() for choices in self.simulated_choices],
            "failed_seeds": [
                {"seed": seed, "reason": reason} for seed, reason in failed
            ],
            "importance": importance.to_dict() if importance else None,
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "against_probe": claim_values(self.probe_comparison.claim)
            if self.probe_comparison
            else None,
            "runs": [_run_values(run) for run in self.runs],
        }

    def _summary(self, value_S: Floats) -> dict[str, object]:
        """Mean, standard deviation and values of a score as JSON values."""
        return _mean_and_std(value_S) | {"per_seed": self._per_seed(value_S)}

    def _per_seed(self, value_S: Floats) -> list[float | None]:
        """One value for every seed, None for a seed that failed or has no value."""
        value_by_seed = dict(zip(self.finished, value_S.tolist(), strict=True))
        defined = {
            seed: value
            for seed, value in value_by_seed.items()
            if not math.isnan(value)
        }
        return [defined.get(seed) for seed in self.seeds]


def _mean_and_std(value_S: Floats) -> dict[str, object]:
    """Mean and standard deviation; None if there are no seeds, or one has no value."""
    if np.isnan(value_S).any():
        return {"mean": None, "std": None}
    return {
        "mean": float(value_S.mean()) if len(value_S) else None,
        "std": stats.standard_deviation(value_S),
    }


def is_unsure(choices: SimulatedChoices) -> bool:
    """Whether other validation rows might well have chosen another candidate."""
    return choices.share < SURE_SHARE


def _run_values(run: RunResult) -> dict[str, object]:
    """A run as JSON values: its folder and key, and where and how it was trained.

    ``fit`` is how its head was fitted, if that was fitted at once.
    """
    values: dict[str, object] = {
        "path": run.path.name,
        "key": run.key,
        "environment": run.environment,
        "engine": run.engine,
    }
    if run.fit:
        values["fit"] = run.fit.to_dict()
    return values


def split_seed_of(run: RunResult) -> int:
    """The seed that divides the rows of a run into folds."""
    return run.recipe.split_seed
