"""Score the predictions of the runs of an entry.

Names of arrays end in their axes: S finished seeds, P parts (1, or the folds of
cross-validations), N test rows, C classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError
from gaam_decoder import stats
from gaam_decoder.reports.entries import (
    MACRO_F1,
    EntryScores,
    Floats,
    MeasuredScore,
)
from gaam_decoder.reports.groups import TableGroups
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_run_by_seed
from gaam_decoder.stats.calibration import CalibrationBins, calibration_bins
from gaam_decoder.stats.groups import RowGroups
from gaam_decoder.stats.scored import Scored
from gaam_decoder.stats.scores.base import Answers, Interval, Score, SeedScore
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of

SCORES = "gaam_decoder.stats.scores"
PartRuns = Sequence[RunResult]
"""Runs of one decoder on one part of the test rows, which differ in their seeds."""
RunsByPart = Sequence[PartRuns]
"""The runs of one decoder on each part of the test rows (1, or the folds)."""


def score_name(score: str | type) -> str:
    """The name of a score: a name, a class of a person's own, or ``FILE.py:CLASS``.

    Raises:
        ConfigError: no such file or class, or the class is no score.
    """
    own_class: str | type = score
    if isinstance(score, str):
        own_class, _ = plugins.split_file_class(score)
        if not own_class:
            return score
    name, _ = plugins.register_class(SCORES, own_class, kind="score")
    return name


def score_of(name: str) -> Score:
    """Load a score by name.

    Raises:
        ConfigError: there is no such score.
    """
    score: Score = plugins.load(SCORES, name, kind="score")()
    return score


def all_scores(task: str = CLASSIFICATION.name) -> dict[str, Score]:
    """Load every score of a task, the default score first.

    Scores of ordered classes are left out: not every task has such classes.
    """
    names = [task_of(task).default_score, *plugins.names(SCORES)]
    scores = {name: score_of(name) for name in names}
    return {
        name: score
        for name, score in scores.items()
        if task in score.tasks and not score.needs_class_order
    }


def score_entry(
    runs_by_part: RunsByPart,
    seeds: Sequence[int],
    repeats: int,
    score: Score,
    fit_temperature: bool,
    groups: TableGroups,
) -> EntryScores:
    """Score the predictions of every seed that finished in all parts.

    Args:
        runs_by_part: the runs of the entry on each part of the test rows.
        seeds: the seeds that every part has, sorted.
        repeats: how often every row is among the test rows.
        score: the score that the table compares.
        fit_temperature: whether scores of probabilities, such as log loss, divide the
            logits by fitted temperatures.
        groups: the groups of the test rows.
    """
    first_run = runs_by_part[0][0]
    task = first_run.task_definition
    predictions = _read_predictions(runs_by_part, seeds, repeats, fit_temperature)
    seed_scores = _score_seeds(predictions, score, task)

    contribution_SN = _row_contributions(predictions, task)
    default = seed_scores.default
    contribution_by_row = _by_row(contribution_SN, runs_by_part, repeats)
    default_score = default.scored(contribution_by_row, groups.row_groups)
    compared_score = _compared_score(
        seed_scores.compared, default_score, runs_by_part, repeats, groups
    )
    is_fitted = bool(first_run.fit)
    classes = _count_classes(predictions, task)
    return EntryScores(
        task=task,
        finished=predictions.finished,
        contribution_SN=contribution_SN,
        default_score=_measure(default.score, default_score, is_fitted),
        compared_score=_measure(score, compared_score, is_fitted),
        score_SP=seed_scores.score_SP(num_parts=len(runs_by_part)),
        values_by_score=seed_scores.value_S_by_score(),
        confusion=classes.confusion,
        vote_accuracy=classes.vote_accuracy,
        trivial_score=_trivial_score(runs_by_part, len(predictions.label_N)),
        labels_per_class=classes.labels_per_class,
        temperatures=predictions.temperature_SP,
        calibration_bins=seed_scores.calibration_bins,
    )


def _row_contributions(predictions: "_Predictions", task: Task) -> NDArray[Any]:
    """What each test row contributes to the default score, (S, N).

    Of classes, whether the prediction is right.
    """
    label_N = predictions.label_N
    if task.has_classes:
        return CLASSIFICATION.hits(predictions.predicted_SN, label_N)
    contributions = [
        task.row_contributions(logits_NK, label_N)
        for logits_NK in predictions.logits_SNC
    ]
    # without a finished seed there is no array that has N
    return np.array(contributions).reshape(len(contributions), len(label_N))


class _ClassCounts(NamedTuple):
    """Counts of classes, as ``EntryScores`` holds them; empty for another task."""

    confusion: NDArray[np.int64]
    vote_accuracy: float | None
    labels_per_class: NDArray[np.int64]


def _count_classes(predictions: "_Predictions", task: Task) -> _ClassCounts:
    """Count true and predicted classes over all seeds."""
    if not task.has_classes:
        return _ClassCounts(
            confusion=np.zeros((0, 0), np.int64),
            vote_accuracy=None,
            labels_per_class=np.zeros(0, np.int64),
        )
    label_N = predictions.label_N
    num_seeds, _num_rows, num_classes = predictions.logits_SNC.shape
    predicted_of_all_seeds = predictions.predicted_SN.ravel()
    # each row is among the test rows once for every repeat
    labels_per_class = np.bincount(label_N, minlength=num_classes)
    labels_per_class //= predictions.repeats
    return _ClassCounts(
        confusion=stats.confusion(
            predicted_of_all_seeds, np.tile(label_N, num_seeds), num_classes
        ),
        vote_accuracy=_vote_accuracy(predictions),
        labels_per_class=labels_per_class,
    )


def _score_seeds(
    predictions: "_Predictions", compared_score: Score, task: Task
) -> "_SeedScores":
    """Score one seed after the other by all scores.

    Each seed is scored by its logits, and by its logits divided by a temperature where
    temperatures are fitted.

    Args:
        predictions: test logits of the finished seeds.
        compared_score: the score that the table compares.
        task: of the predictions.
    """
    seed_scores = _SeedScores(compared_score, task)
    for index in range(len(predictions.finished)):
        answers = predictions.answers(index)
        scaled_answers = answers
        if predictions.temperature_SP is not None:
            scaled_answers = predictions.scaled_answers(
                index, predictions.temperature_SP
            )
        seed_scores.add(answers, scaled_answers)
    return seed_scores


def _vote_accuracy(predictions: "_Predictions") -> float | None:
    """Accuracy of the class that most seeds predict for a row.

    None without a finished seed.
    """
    if not predictions.finished:
        return None
    vote_N = stats.majority_votes(predictions.logits_SNC, predictions.predicted_SN)
    return float((vote_N == predictions.label_N).mean())


def _measure(score: Score, scored: Scored, is_fitted: bool) -> MeasuredScore:
    """Mean and standard deviation of a score over seeds, and their interval.

    Args:
        score: the score, which has the range of its values.
        scored: its values of every seed, and of every row.
        is_fitted: whether the head was fitted at once, so that one model stands for
            all seeds.
    """
    value_S = scored.values
    # a score that is undefined for a seed has no mean and no interval over seeds
    mean = None
    std = None
    seeds_interval: Interval = None
    if len(value_S) and np.isfinite(value_S).all():
        mean = float(value_S.mean())
        std = stats.standard_deviation(value_S)
        over_seeds = stats.t_interval(value_S)
        seeds_interval = stats.within(over_seeds, score.lowest, score.highest)
    return MeasuredScore(
        score=score,
        scored=scored,
        is_fitted=is_fitted,
        mean=mean,
        std=std,
        seeds_interval=seeds_interval,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Test logits of the seeds that finished in all parts.

    The rows of the parts stand one after the other.
    """

    finished: tuple[int, ...]
    logits_SNC: NDArray[np.float32]
    label_N: NDArray[Any]  # as ``RunResult.targets``
    rows_of_parts: tuple[int, ...]  # number of test rows of every part
    repeats: int  # how often every row is among the test rows
    temperature_SP: Floats | None  # divisors of the logits; None: not divided

    @cached_property
    def predicted_SN(self) -> NDArray[np.int64]:
        """The class that each seed predicts for each row; for a task of classes."""
        return CLASSIFICATION.predictions(self.logits_SNC)

    def answers(self, index: int) -> Answers:
        """The test logits of the seed at this index, with the targets."""
        logits_NC = self.logits_SNC[index]
        return Answers(logits_NC, self.label_N, self.rows_of_parts, self.repeats)

    def scaled_answers(self, index: int, temperature_SP: Floats) -> Answers:
        """The logits of the seed at this index, in each part over its temperature."""
        # In float64: in float32 two logits might become equal, and another class
        # the first.
        logits_NC = self.logits_SNC[index].astype(np.float64)
        temperature_N = np.repeat(temperature_SP[index], self.rows_of_parts)
        scaled_NC = logits_NC / temperature_N[:, None]
        return Answers(scaled_NC, self.label_N, self.rows_of_parts, self.repeats)


def _read_predictions(
    runs_by_part: RunsByPart,
    seeds: Sequence[int],
    repeats: int,
    fit_temperature: bool,
) -> _Predictions:
    """Join the test logits of all parts, for the seeds that finished in each part.

    Args:
        runs_by_part: the runs of an entry on each part of the test rows.
        seeds: the seeds that every part has.
        repeats: how often every row is among the test rows.
        fit_temperature: whether to fit temperatures to the validation rows.
    """
    logits_by_seed_of_parts = [_logits_by_seed(runs) for runs in runs_by_part]
    finished = [
        seed
        for seed in seeds
        if all(seed in logits_by_seed for logits_by_seed in logits_by_seed_of_parts)
    ]
    label_N = np.concatenate([runs[0].targets for runs in runs_by_part])
    num_classes = len(runs_by_part[0][0].cache.names)
    temperature_SP = _temperatures(runs_by_part, finished) if fit_temperature else None

    shape = (len(finished), len(label_N), num_classes)
    logits_SNC = np.empty(shape, np.float32)
    for index, seed in enumerate(finished):
        logits_of_parts = [
            logits_by_seed[seed] for logits_by_seed in logits_by_seed_of_parts
        ]
        np.concatenate(logits_of_parts, out=logits_SNC[index])
    return _Predictions(
        finished=tuple(finished),
        logits_SNC=logits_SNC,
        label_N=label_N,
        rows_of_parts=tuple(len(runs[0].labels) for runs in runs_by_part),
        repeats=repeats,
        temperature_SP=temperature_SP,
    )


class _ScoreOfSeeds:
    """Collects one score, with its rows, of one seed after the other."""

    def __init__(self, score: Score) -> None:
        self.score = score
        # the score of each seed; None where it is undefined
        self.seed_scores: list[SeedScore | None] = []
        # why the score allows no claim, of the first seed with a reason
        self.no_claim_reason = ""

    def add(self, answers: Answers) -> None:
        """Score the answers of a seed."""
        self.seed_scores.append(self.score.seed_score(answers))
        if not self.no_claim_reason:
            self.no_claim_reason = self.score.why_no_claim(answers)

    def scored(self, by_row: NDArray[Any] | None, groups: RowGroups | None) -> Scored:
        """Join the defined scores of the seeds, with the contribution of every row."""
        defined = [score for score in self.seed_scores if score is not None]
        return Scored.from_seeds(defined, by_row, self.no_claim_reason, groups)


class _SeedScores:
    """Collects the scores of one seed after the other.

    ``compared`` is the score that the table compares, ``default`` that of the task;
    ``scores`` are all scores of the task by name.
    """

    def __init__(self, compared_score: Score, task: Task) -> None:
        self.task = task
        self.scores = all_scores(task.name)
        self.default = _ScoreOfSeeds(self.scores[task.default_score])
        # most tables compare the default score
        self.compared = self.default
        if type(compared_score) is not type(self.default.score):
            self.compared = _ScoreOfSeeds(compared_score)
        # for each seed, the value of the compared score on each part of the test rows
        self.values_of_parts: list[list[float | None]] = []
        self.calibration_bins = CalibrationBins()  # of all seeds together
        # name of a score -> its value for each seed; NaN where it is undefined
        self._values_by_score: dict[str, list[float]] = {
            name: [] for name in self.scores
        }

    def add(self, answers: Answers, scaled_answers: Answers) -> None:
        """Score a seed by all scores.

        Args:
            answers: its logits and the targets.
            scaled_answers: the same with the logits divided by the temperatures, for
                scores of probabilities.
        """
        for name, score in self.scores.items():
            value = score.value(scaled_answers if score.uses_temperature else answers)
            self._values_by_score[name].append(math.nan if value is None else value)

        # no default score is one of probabilities
        self.default.add(answers)
        compared_score = self.compared.score
        compared_answers = answers
        if compared_score.uses_temperature:
            compared_answers = scaled_answers
        if self.compared is not self.default:
            self.compared.add(compared_answers)
        self.values_of_parts.append(_values_of_parts(compared_score, compared_answers))
        if self.task.has_probabilities:
            self.calibration_bins += calibration_bins(scaled_answers)

    def score_SP(self, num_parts: int) -> Floats:
        """The compared score of every seed on every part; NaN where undefined."""
        shape = (len(self.values_of_parts), num_parts)
        return np.array(self.values_of_parts, np.float64).reshape(shape)

    def value_S_by_score(self) -> dict[str, Floats]:
        """Name of a score -> its values, (S,), NaN for a seed without one.

        Scores that no seed has are left out, except those that every report shows.
        """
        in_every_report = {self.task.default_score}
        if self.task.has_classes:
            in_every_report.add(MACRO_F1)
        return {
            name: np.array(values, np.float64)
            for name, values in self._values_by_score.items()
            if name in in_every_report or not np.isnan(values).all()
        }


def _values_of_parts(score: Score, answers: Answers) -> list[float | None]:
    """The value of a score on each part of the test rows; None where undefined."""
    # the rows of the parts stand one after the other
    ends = np.cumsum(answers.fold_sizes)[:-1]
    logits_of_parts = np.split(answers.logits, ends)
    labels_of_parts = np.split(answers.labels, ends)
    return [
        score.value(Answers(logits, labels))
        for logits, labels in zip(logits_of_parts, labels_of_parts, strict=True)
    ]


def _compared_score(
    compared: _ScoreOfSeeds,
    default_score: Scored,
    runs_by_part: RunsByPart,
    repeats: int,
    groups: TableGroups,
) -> Scored:
    """The score that the table compares, of all seeds.

    If the score is undefined for a seed, all its values are NaN, and no claim is made.

    Args:
        compared: the score of every seed.
        default_score: of the task. Without a finished seed it is empty, and stands for
            the compared score.
        runs_by_part: the runs of the entry on each part of the test rows.
        repeats: how often every row is among the test rows.
        groups: the groups of the test rows.
    """
    if not compared.seed_scores:
        return default_score
    defined = [score for score in compared.seed_scores if score is not None]
    if len(defined) < len(compared.seed_scores):
        return Scored(
            values=np.full(len(compared.seed_scores), np.nan),
            by_row=None,
            no_claim_reason=f"these rows and classes have no {compared.score.title}",
        )

    contributions = [score.by_row for score in defined if score.by_row is not None]
    by_row = None
    if contributions:
        by_row = _by_row(np.stack(contributions), runs_by_part, repeats)
    return compared.scored(by_row, groups.row_groups)


def _trivial_score(runs_by_part: RunsByPart, num_rows: int) -> float:
    """The default score of the best prediction that looks at no row, on all test rows.

    Of classes, it is the accuracy of the most frequent class of the training rows. It
    is the mean over the parts, weighted by their numbers of test rows.

    Args:
        runs_by_part: the runs on each part of the test rows: 1, or the folds.
        num_rows: number of test rows of all parts.
    """
    weighted_sum: float = 0
    for runs in runs_by_part:
        run = runs[0]
        # Of classes a run records the accuracy of the majority, of other tasks the
        # score of the mean or of no label. A run that records neither counts as 0.
        trivial_score = run.majority_accuracy or run.baseline_score or 0
        weighted_sum += trivial_score * len(run.labels)
    return weighted_sum / num_rows


def _by_row(
    value_SN: NDArray[Any], runs_by_part: RunsByPart, repeats: int
) -> NDArray[Any]:
    """Average the values of each row over the repeats of a cross-validation.

    Args:
        value_SN: value of every seed on every test row; each row stands in it once for
            every repeat.
        runs_by_part: the runs on each part of the test rows, which hold the numbers of
            their rows.
        repeats: number of repeats.

    Returns:
        (S, rows of the split), in the order of the rows' numbers.
    """
    if repeats == 1:
        return value_SN
    row_N = np.concatenate([runs[0].test_rows for runs in runs_by_part])
    # how often each row was tested
    counts = np.unique(row_N, return_counts=True)[1]
    if (counts != repeats).any():
        raise CacheError(
            "folds of repeats do not test every row equally often",
            where=str(runs_by_part[0][0].path.parent),
        )
    # sorted by row number, the repeats of a row stand side by side
    shape = (len(value_SN), len(row_N) // repeats, repeats)
    sorted_SN = value_SN[:, np.argsort(row_N, kind="stable")]
    mean_SN: Floats = sorted_SN.reshape(shape).mean(2, dtype=np.float64)
    return mean_SN


def _logits_by_seed(runs: PartRuns) -> dict[int, NDArray[np.float32]]:
    """Finished seed -> its test logits, (N, C), from the run that counts for it.

    Of several runs of one seed, the first counts.

    Raises:
        CacheError: a run has logits that are NaN or infinite.
    """
    counting_run = first_run_by_seed(runs)
    logits_by_seed: dict[int, NDArray[np.float32]] = {}
    for run in runs:
        logits_SNC = run.finished_logits()
        # The largest of logits that are no numbers would be an arbitrary class.
        if not np.isfinite(logits_SNC).all():
            raise CacheError(
                "the run has test logits that are no numbers", where=str(run.path)
            )
        logits_by_seed |= {
            seed: logits_NC
            for seed, logits_NC in zip(run.finished, logits_SNC, strict=True)
            if counting_run[seed] is run
        }
    return logits_by_seed


def _temperatures(runs_by_part: RunsByPart, seeds: Sequence[int]) -> Floats | None:
    """Temperatures that fit the validation rows of every seed and part, (S, P).

    None without seeds, or if a seed has no validation rows or no temperature fits them.
    """
    if not seeds:
        return None
    temperature_SP = np.ones((len(seeds), len(runs_by_part)))
    for part_index, runs in enumerate(runs_by_part):
        counting_run = first_run_by_seed(runs)
        counting_runs = {counting_run[seed] for seed in seeds}
        # reading the validation logits of a run once is enough for all its seeds
        validation_of = {run: run.validation for run in counting_runs}
        for index, seed in enumerate(seeds):
            run = counting_run[seed]
            validation = validation_of[run]
            if validation is None:
                return None
            temperature = validation.temperature(run.seeds.index(seed))
            if temperature is None:
                return None
            temperature_SP[index, part_index] = temperature
    return temperature_SP
