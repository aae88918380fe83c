"""Score the predictions of the runs of an entry.

Names of arrays end in their axes: S finished seeds, P parts (1, or the folds of
cross-validations), N test rows, C classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError
from gaam_decoder import stats
from gaam_decoder.reports.entries import (
    DEFAULT_SCORE,
    MACRO_F1,
    EntryScores,
    Floats,
    MeasuredScore,
)
from gaam_decoder.reports.groups import TableGroups
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_run_by_seed
from gaam_decoder.stats.scored import Scored, interval_by_score
from gaam_decoder.stats.scores.base import Answers, Interval, Score, SeedScore
from gaam_decoder.stats.scores.ece import BINS, reliability
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of

SCORES = "gaam_decoder.stats.scores"
# Runs of different seeds on the same test rows.
Part = Sequence[RunResult]


def score_name(text: str) -> str:
    """The name of a score that a person wrote as a name or as ``FILE.py:CLASS``.

    Raises:
        ConfigError: no such file or class, or the class is no score.
    """
    file_class, _ = plugins.split_file_class(text)
    if not file_class:
        return text
    name, _ = plugins.register_class(SCORES, file_class, kind="score")
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
    parts: Sequence[Part],
    seeds: Sequence[int],
    repeats: int,
    score: Score,
    fit_temperature: bool,
    groups: TableGroups,
) -> EntryScores:
    """Score the predictions of every seed that finished in all parts.

    Args:
        parts: the runs of the entry on each part of the test rows.
        seeds: the seeds that every part has, sorted.
        repeats: how often every row is among the test rows.
        score: the score that the table compares.
        fit_temperature: whether to divide the logits by fitted temperatures, in scores
            of the size of probabilities.
        groups: the groups of the test rows.
    """
    task = parts[0][0].task_definition
    predictions = _read_predictions(parts, seeds, repeats, fit_temperature)
    tally = _tally_seeds(predictions, score, task)
    if not task.has_classes:
        return _scores_without_classes(task, predictions, tally, parts, score, groups)

    label_N = predictions.label_N
    num_classes = predictions.logits_SNC.shape[2]
    num_seeds = len(predictions.finished)
    predicted_SN = CLASSIFICATION.predictions(predictions.logits_SNC)
    right_SN = CLASSIFICATION.hits(predicted_SN, label_N)

    value_S_by_score = tally.value_S_by_score()
    accuracy = Scored(
        values=value_S_by_score[DEFAULT_SCORE],
        by_row=_by_row(right_SN, parts, repeats),
        groups=groups.groups,
    )
    compared = _compared_score(tally, accuracy, parts, repeats, groups)
    fitted = bool(parts[0][0].fit)
    score_SP = np.array(tally.part_values, np.float64).reshape(num_seeds, len(parts))
    return EntryScores(
        task=task,
        finished=predictions.finished,
        right_SN=right_SN,
        accuracy=_measure(tally.scores[DEFAULT_SCORE], accuracy, fitted),
        compared_score=_measure(score, compared, fitted),
        score_SP=score_SP,
        values_by_score=value_S_by_score,
        confusion=stats.confusion(
            predicted_SN.ravel(), np.tile(label_N, num_seeds), num_classes
        ),
        vote_accuracy=_vote_accuracy(predictions, predicted_SN),
        majority_accuracy=_majority_accuracy(parts, len(label_N)),
        labels_per_class=np.bincount(label_N, minlength=num_classes),
        temperatures=predictions.temperature_SP,
        calibration_bins=tally.bins,
    )


def _scores_without_classes(
    task: Task,
    predictions: "_Predictions",
    tally: "_Tally",
    parts: Sequence[Part],
    score: Score,
    groups: TableGroups,
) -> EntryScores:
    """The scores of an entry that predicts numbers or label sets.

    Args:
        task: of the entry.
        predictions: test logits of its finished seeds.
        tally: the scores of these seeds.
        parts: its runs on each part of the test rows (1, or the folds).
        score: the score that the table compares.
        groups: the groups of the test rows.
    """
    repeats = predictions.repeats
    contribution_SN = np.array(
        [
            task.row_contributions(logits_NK, predictions.label_N)
            for logits_NK in predictions.logits_SNC
        ]
    ).reshape(len(predictions.finished), len(predictions.label_N))
    default_score = Scored(
        values=np.array(
            [
                task.selection_score(logits_NK, predictions.label_N)
                for logits_NK in predictions.logits_SNC
            ],
            np.float64,
        ),
        by_row=_by_row(contribution_SN, parts, repeats),
        groups=groups.groups,
    )
    compared = _compared_score(tally, default_score, parts, repeats, groups)
    fitted = bool(parts[0][0].fit)
    shape = (len(predictions.finished), len(parts))
    return EntryScores(
        task=task,
        finished=predictions.finished,
        right_SN=contribution_SN,
        accuracy=_measure(tally.scores[task.default_score], default_score, fitted),
        compared_score=_measure(score, compared, fitted),
        score_SP=np.array(tally.part_values, np.float64).reshape(shape),
        values_by_score=tally.value_S_by_score(),
        confusion=np.zeros((0, 0), np.int64),
        vote_accuracy=None,
        majority_accuracy=_majority_accuracy(parts, len(predictions.label_N)),
        labels_per_class=np.zeros(0, np.int64),
        temperatures=predictions.temperature_SP,
        calibration_bins=tally.bins,
    )


def _tally_seeds(predictions: "_Predictions", score: Score, task: Task) -> "_Tally":
    """Score one seed after the other by all scores.

    Each seed is scored by its logits, and by its logits divided by a temperature where
    temperatures are fitted.

    Args:
        predictions: test logits of the finished seeds.
        score: the score that the table compares.
        task: of the predictions.
    """
    tally = _Tally(score, task)
    for index in range(len(predictions.finished)):
        answers = predictions.answers(index)
        scaled_answers = answers
        if predictions.temperature_SP is not None:
            scaled_answers = predictions.scaled_answers(
                index, predictions.temperature_SP
            )
        tally.add(answers, scaled_answers)
    return tally


def _vote_accuracy(
    predictions: "_Predictions", predicted_SN: NDArray[np.int64]
) -> float | None:
    """Accuracy of the class that most seeds predict for a row.

    None without a finished seed.
    """
    if not predictions.finished:
        return None
    vote_N = stats.majority_votes(predictions.logits_SNC, predicted_SN)
    return float((vote_N == predictions.label_N).mean())


def _measure(score: Score, scored: Scored, fitted: bool) -> MeasuredScore:
    """Mean, standard deviation and intervals of a score.

    Args:
        score: the score, which has the range of its values.
        scored: its values of every seed, and of every row.
        fitted: whether the head was fitted at once, so that one model stands for all
            seeds.
    """
    value_S = scored.values
    # a score that is undefined for a seed has no mean and no interval over seeds
    mean = None
    std = None
    interval: Interval = None
    if len(value_S) and np.isfinite(value_S).all():
        mean = float(value_S.mean())
        std = stats.standard_deviation(value_S)
        over_seeds = stats.t_interval(value_S)
        interval = stats.within(over_seeds, score.lowest, score.highest)
    seeds_rows_interval = interval_by_score(score, scored, without_seeds=fitted)
    return MeasuredScore(score, scored, mean, std, interval, seeds_rows_interval)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Test logits of the seeds that finished in all parts."""

    finished: tuple[int, ...]
    logits_SNC: NDArray[np.float32]
    label_N: NDArray[Any]  # as ``RunResult.targets``
    sizes: tuple[int, ...]  # number of test rows of every part
    repeats: int  # how often every row is among the test rows
    temperature_SP: Floats | None  # divisors of the logits; None: not divided

    def answers(self, index: int) -> Answers:
        """The test logits of the seed at this index, with the targets."""
        logits_NC = self.logits_SNC[index]
        return Answers(logits_NC, self.label_N, self.sizes, self.repeats)

    def scaled_answers(self, index: int, temperature_SP: Floats) -> Answers:
        """The logits of the seed at this index, in each part over its temperature."""
        # In float64: in float32 two logits might become equal, and another class
        # the first.
        logits_NC = self.logits_SNC[index].astype(np.float64)
        temperature_N = np.repeat(temperature_SP[index], self.sizes)
        scaled_NC = logits_NC / temperature_N[:, None]
        return Answers(scaled_NC, self.label_N, self.sizes, self.repeats)


def _read_predictions(
    parts: Sequence[Part], seeds: Sequence[int], repeats: int, fit_temperature: bool
) -> _Predictions:
    """Join the test logits of all parts, for the seeds that finished in each part.

    Args:
        parts: the runs of an entry on each part of the test rows.
        seeds: the seeds that every part has.
        repeats: how often every row is among the test rows.
        fit_temperature: whether to fit temperatures to the validation rows.
    """
    logits_by_part = [_logits(part) for part in parts]
    finished = [
        seed for seed in seeds if all(seed in logits for logits in logits_by_part)
    ]
    label_N = np.concatenate([part[0].targets for part in parts])
    num_classes = len(parts[0][0].cache.names)
    temperature_SP = _temperatures(parts, finished) if fit_temperature else None

    shape = (len(finished), len(label_N), num_classes)
    logits_SNC = np.empty(shape, np.float32)
    for index, seed in enumerate(finished):
        seed_logits = [logits[seed] for logits in logits_by_part]
        np.concatenate(seed_logits, out=logits_SNC[index])
    return _Predictions(
        finished=tuple(finished),
        logits_SNC=logits_SNC,
        label_N=label_N,
        sizes=tuple(len(part[0].labels) for part in parts),
        repeats=repeats,
        temperature_SP=temperature_SP,
    )


class _Tally:
    """Collects the scores of one seed after the other.

    ``scores`` are all scores of the task by name, ``compared_score`` is the one that
    the table compares. ``seed_scores`` has its value and rows for each seed, None where
    it is undefined; ``part_values`` has its values on the parts for each seed.
    ``no_claim`` is the first reason against a claim, and ``bins`` are the bins of
    ``EntryScores.calibration_bins``.
    """

    def __init__(self, compared_score: Score, task: Task) -> None:
        self.compared_score = compared_score
        self.task = task
        self.scores = all_scores(task.name)
        self.seed_scores: list[SeedScore | None] = []
        self.part_values: list[list[float | None]] = []
        self.no_claim_reason = ""
        self.bins: Floats = np.zeros((3, BINS))
        # one value for each seed added; NaN where the score is undefined
        self._values: dict[str, list[float]] = {name: [] for name in self.scores}

    def add(self, answers: Answers, scaled_answers: Answers) -> None:
        """Score a seed by all scores.

        Args:
            answers: its logits and the targets.
            scaled_answers: the same with the logits divided by the temperatures, for
                scores of the size of probabilities.
        """
        for name, score in self.scores.items():
            value = score.value(scaled_answers if score.uses_temperature else answers)
            self._values[name].append(math.nan if value is None else value)

        compared = self.compared_score
        compared_answers = scaled_answers if compared.uses_temperature else answers
        self.seed_scores.append(compared.seed_score(compared_answers))
        if not self.no_claim_reason:
            self.no_claim_reason = compared.why_no_claim(compared_answers)

        # the rows of the parts stand one after the other
        ends = np.cumsum(answers.fold_sizes)[:-1]
        logits_by_part = np.split(compared_answers.logits, ends)
        labels_by_part = np.split(compared_answers.labels, ends)
        part_values = []
        for logits, labels in zip(logits_by_part, labels_by_part, strict=True):
            part_values.append(compared.value(Answers(logits, labels)))
        self.part_values.append(part_values)
        if self.task.has_probabilities:
            self.bins += np.stack(reliability(scaled_answers))

    def value_S_by_score(self) -> dict[str, Floats]:
        """Name of a score -> its values, (S,), NaN for a seed without one.

        Scores that no seed has are left out, but those that every report shows.
        """
        always = {self.task.default_score}
        if self.task.has_classes:
            always.add(MACRO_F1)
        return {
            name: np.array(values, np.float64)
            for name, values in self._values.items()
            if name in always or not np.isnan(values).all()
        }


def _compared_score(
    tally: _Tally,
    default_score: Scored,
    parts: Sequence[Part],
    repeats: int,
    groups: TableGroups,
) -> Scored:
    """The score that the table compares, of all seeds.

    If no seed finished it is ``default_score``, which is then empty. If the score is
    undefined for a seed, all its values are NaN, and no claim is made.

    Args:
        tally: the scores of every seed.
        default_score: values of the default score of the task.
        parts: the runs of the entry on each part of the test rows.
        repeats: how often every row is among the test rows.
        groups: the groups of the test rows.
    """
    if not tally.seed_scores:
        return default_score
    defined = [score for score in tally.seed_scores if score is not None]
    if len(defined) < len(tally.seed_scores):
        reason = f"these rows and classes have no {tally.compared_score.title}"
        nan_S = np.full(len(tally.seed_scores), np.nan)
        return Scored(values=nan_S, by_row=None, no_claim_reason=reason)

    by_row = None
    rows = [score.by_row for score in defined if score.by_row is not None]
    if rows:
        by_row = _by_row(np.stack(rows), parts, repeats)
    return Scored.from_seeds(defined, by_row, tally.no_claim_reason, groups.groups)


def _majority_accuracy(parts: Sequence[Part], num_rows: int) -> float:
    """Accuracy of the most frequent class of the training rows, on all test rows.

    Of other tasks the score of their trivial prediction. It is the mean over the parts
    (1, or the folds), weighted by their number of test rows.
    """
    right = sum(
        (part[0].majority_accuracy or part[0].baseline_score or 0) * len(part[0].labels)
        for part in parts
    )
    return right / num_rows


def _by_row(value_SN: NDArray[Any], parts: Sequence[Part], repeats: int) -> Any:
    """Average the values of each row over the repeats of a cross-validation.

    Args:
        value_SN: value of every seed on every test row; each row stands in it once for
            every repeat.
        parts: the runs on each part of the test rows, which hold the rows' numbers.
        repeats: number of repeats.

    Returns:
        (S, rows of the split), in the order of the rows' numbers.
    """
    if repeats == 1:
        return value_SN
    row_N = np.concatenate([part[0].test_rows for part in parts])
    # how often each row was tested
    counts = np.unique(row_N, return_counts=True)[1]
    if (counts != repeats).any():
        raise CacheError(
            "folds of repeats do not test every row equally often",
            where=str(parts[0][0].path.parent),
        )
    # sorted by row number, the repeats of a row stand side by side
    shape = (len(value_SN), len(row_N) // repeats, repeats)
    sorted_SN = value_SN[:, np.argsort(row_N, kind="stable")]
    return sorted_SN.reshape(shape).mean(2, dtype=np.float64)


def _logits(part: Part) -> dict[int, NDArray[np.float32]]:
    """Finished seed -> its test logits, (N, C), from the run that counts for it.

    Of several runs of one seed, the first counts.

    Raises:
        CacheError: a run has logits that are NaN or infinite.
    """
    counting_run = first_run_by_seed(part)
    logits_by_seed: dict[int, NDArray[np.float32]] = {}
    for run in part:
        logits = run.finished_logits()
        # The largest of logits that are no numbers would be an arbitrary class.
        if not np.isfinite(logits).all():
            raise CacheError(
                "the run has test logits that are no numbers", where=str(run.path)
            )
        logits_by_seed |= {
            seed: logits_NC
            for seed, logits_NC in zip(run.finished, logits, strict=True)
            if counting_run[seed] is run
        }
    return logits_by_seed


def _temperatures(parts: Sequence[Part], seeds: Sequence[int]) -> Floats | None:
    """Temperatures that fit the validation rows of every seed and part, (S, P).

    None without seeds, or if a seed has no validation rows or no temperature fits them.
    """
    if not seeds:
        return None
    value_SP = np.ones((len(seeds), len(parts)))
    for part_index, part in enumerate(parts):
        counting_run = first_run_by_seed(part)
        runs = {counting_run[seed] for seed in seeds}
        # reading the validation logits of a run once is enough for all its seeds
        validation_of = {run: run.validation for run in runs}
        for index, seed in enumerate(seeds):
            run = counting_run[seed]
            validation = validation_of[run]
            if validation is None:
                return None
            value = validation.temperature(run.seeds.index(seed))
            if value is None:
                return None
            value_SP[index, part_index] = value
    return value_SP
