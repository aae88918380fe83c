"""Select the runs that count, and tune the learning rate and weight decay of decoders.

A seed may be in several runs of one key: the first of them counts. Runs whose recipes
differ in learning rate or weight decay alone are candidates: the one with the best mean
validation accuracy is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.runs.files import TEST_FILE
from gaam_decoder.runs.folders import name_ending
from gaam_decoder.runs.result import RunResult
from gaam_decoder.tasks import CLASSIFICATION, task_of

NAMES_IN_WORDS = {"lr": "learning rate", "weight_decay": "weight decay"}
TUNED_SETTINGS = tuple(NAMES_IN_WORDS)
"""Numbers of a recipe in which the candidates of one decoder differ."""
VAL_FOLDS = "val_folds"
"""The setting with which each seed holds out another part of the training rows."""

TunedValues = tuple[float, ...]
"""Values of ``TUNED_SETTINGS``, in that order."""
RunsByValues = Mapping[TunedValues, Sequence[RunResult]]


def first_run_by_seed(runs: Iterable[RunResult]) -> dict[int, RunResult]:
    """The run that counts for every seed: the first that has it, finished or failed.

    A seed may be in several runs of a decoder. Runs are sorted by the ending that
    ``run_name`` gives them (``s0-9`` before ``s5``), then by the digest of their
    results. A renamed or moved run counts as before.
    """

    def sort_key(run: RunResult) -> tuple[str, ...]:
        ending = name_ending(run.key, run.seeds)
        digest = run.files[TEST_FILE].sha256 if TEST_FILE in run.files else ""
        # the path matters only between copies of one run
        return ending, digest, run.path.name, str(run.path)

    runs_by_seed: dict[int, RunResult] = {}
    for run in sorted(runs, key=sort_key):
        for seed in run.seeds:
            runs_by_seed.setdefault(seed, run)
    return dict(sorted(runs_by_seed.items()))


def values_by_finished_seed(
    runs: Sequence[RunResult], read: Callable[[RunResult], NDArray[Any] | None]
) -> dict[int, NDArray[Any]]:
    """The part of an array, such as the logits, that belongs to each finished seed.

    Args:
        runs: runs that differ in their seeds alone.
        read: reads the array of a run, whose first axis are the seeds; None where the
            run has none, so that its seeds are left out.
    """
    values_by_seed = {}
    for seed, run in first_run_by_seed(runs).items():
        if seed in run.failed:
            continue
        values = read(run)
        if values is not None:
            values_by_seed[seed] = values[run.seeds.index(seed)]
    return values_by_seed


def _scaled(
    logits_NC: NDArray[np.float32], temperature: float | None
) -> NDArray[np.floating[Any]]:
    """Logits divided by a temperature; as they are if none fits."""
    if temperature is None:
        return logits_NC
    return logits_NC.astype(np.float64) / temperature


class Candidate(NamedTuple):
    """A learning rate and weight decay that were tried, with their mean validation."""

    values: dict[str, float]
    accuracy: float | None  # or the score of another task; None: a seed failed
    loss: float


class CandidateAnswers(NamedTuple):
    """Validation results and test logits of a candidate under the deciding seeds.

    R is the number of validation rows. If each seed has rows of its own, it counts the
    rows of all seeds, one seed after the other.
    """

    contribution_R: NDArray[Any]
    """Whether the candidate was right on each row, or what the row contributes to the
    score of another task; the mean over the seeds if they share the rows."""
    test_logits_of_seeds: list[NDArray[np.floating[Any]]]
    """For each seed, (N, C); divided by a temperature where temperatures are fitted."""
    numbers_of_relations: list[NDArray[np.int32]]
    """For each relation that the runs have, a number of every row, (R,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the learning rate and weight decay of a decoder were tuned."""

    chosen: dict[str, float]
    candidates: tuple[Candidate, ...]
    """All that the deciding seeds tried, ascending."""
    untried: tuple[dict[str, float], ...] = ()
    """Values of runs that are left out, because the deciding seeds did not try them."""
    seeds: tuple[int, ...]
    """Seeds whose validation rows decided."""
    has_reporting_seeds: bool
    """Whether those seeds are left out of the reported results."""
    task: str = CLASSIFICATION.name
    """Its ``Task.selection_score`` is the accuracy of the candidates."""
    candidate_runs: tuple[tuple[RunResult, ...], ...] = ()
    """Deciding runs of each candidate that has a mean validation accuracy."""

    def answers_of_candidates(
        self, relations: Collection[str] = (), fit_temperature: bool = False
    ) -> Iterator[CandidateAnswers]:
        """Validation results and test logits of each candidate of ``candidate_runs``.

        The iteration stops at the first candidate with a run that lacks validation or
        test rows.

        Args:
            relations: names of relations. A relation gives rows that belong together,
                such as those of a speaker, the same number.
            fit_temperature: whether to divide the test logits of each seed by the
                temperature that fits its validation rows.
        """
        for runs in self.candidate_runs:
            answers = self._answers_of_candidate(runs, relations, fit_temperature)
            if answers is None:
                return
            yield answers

    def _answers_of_candidate(
        self,
        runs: Sequence[RunResult],
        relations: Collection[str],
        fit_temperature: bool,
    ) -> CandidateAnswers | None:
        """The answers of a candidate; None if a run has no validation or test rows."""
        runs_by_seed = first_run_by_seed(runs)
        contributions_of_seeds: list[NDArray[Any]] = []
        test_logits_of_seeds: list[NDArray[np.floating[Any]]] = []
        # of each seed, the numbers of its validation rows in each relation
        relations_of_seeds: list[list[NDArray[np.int32]]] = []
        for seed in self.seeds:
            run = runs_by_seed[seed]
            validation = run.validation
            if validation is None or not run.evaluated:
                return None
            index = run.seeds.index(seed)
            logits_VC, label_V = validation.logits_and_labels_of_seed(index)
            contributions_of_seeds.append(
                run.task_definition.row_contributions(logits_VC, label_V)
            )
            test_logits_NC = run.finished_logits()[run.finished.index(seed)]
            if fit_temperature:
                test_logits_NC = _scaled(test_logits_NC, validation.temperature(index))
            test_logits_of_seeds.append(test_logits_NC)
            relations_of_seeds.append(validation.relations_of_seed(index, relations))

        seeds_share_rows = runs[0].recipe.val_folds is None
        if seeds_share_rows:
            contributions = np.mean(contributions_of_seeds, axis=0)
            # the same rows have the same numbers in every seed
            numbers_of_relations = relations_of_seeds[0]
        else:
            contributions = np.concatenate(contributions_of_seeds)
            numbers_of_relations = [
                np.concatenate(numbers_of_seeds)
                for numbers_of_seeds in zip(*relations_of_seeds, strict=True)
            ]
        return CandidateAnswers(
            contributions, test_logits_of_seeds, numbers_of_relations
        )

    @property
    def chosen_index(self) -> int:
        """Position of the chosen candidate in ``candidate_runs``."""
        values_of_runs = [
            candidate.values
            for candidate in self.candidates
            if candidate.accuracy is not None
        ]
        return values_of_runs.index(self.chosen)

    @property
    def accuracy(self) -> float:
        """Mean validation accuracy of the chosen candidate."""
        chosen = next(
            candidate
            for candidate in self.candidates
            if candidate.values == self.chosen
        )
        assert chosen.accuracy is not None, (
            "a candidate without a validation accuracy is never chosen"
        )
        return chosen.accuracy

    @property
    def names(self) -> tuple[str, ...]:
        """Learning rate or weight decay, or both: those with several tried values."""
        return tuple(
            name for name in TUNED_SETTINGS if len(set(self._values_of(name))) > 1
        )

    @property
    def at_edge(self) -> tuple[str, ...]:
        """Settings whose chosen value is the smallest or largest that was tried.

        A chosen 0 is no edge, because no smaller value exists.
        """
        names = []
        for name in self.names:
            values = self._values_of(name)
            chosen = self.chosen[name]
            if chosen > 0 and chosen in (min(values), max(values)):
                names.append(name)
        return tuple(names)

    def _values_of(self, name: str) -> list[float]:
        """The tried values of a setting, one for each candidate."""
        return [candidate.values[name] for candidate in self.candidates]

    def to_dict(self) -> dict[str, Any]:
        """The tuning as JSON values."""
        key = f"validation_{task_of(self.task).score_key}"
        candidates: list[dict[str, float | None]] = [
            {**candidate.values, key: candidate.accuracy}
            for candidate in self.candidates
        ]
        return {
            "chosen": self.chosen,
            "candidates": candidates,
            "untried": list(self.untried),
            "seeds": list(self.seeds),
            "reported_on_other_seeds": self.has_reporting_seeds,
            "at_edge": list(self.at_edge),
        }


def tuning_in_words(tunings: Sequence[Tuning]) -> str:
    """The chosen values of a decoder, such as ``learning rate 0.05, chosen from 4``.

    Args:
        tunings: of the decoder, one for each fold. Folds may choose different values;
            the validation score is the mean over the folds.
    """
    counts = Counter(_chosen_in_words(tuning) for tuning in tunings)
    choices = list(counts)
    if len(counts) > 1:
        choices = [
            f"{choice} in {count} {'folds' if count > 1 else 'fold'}"
            for choice, count in counts.most_common()
        ]

    # Each number of candidates is named once, in the order of the folds.
    numbers_tried = dict.fromkeys(str(len(tuning.candidates)) for tuning in tunings)
    mean_score = math.fsum(tuning.accuracy for tuning in tunings) / len(tunings)
    score_in_words = task_of(tunings[0].task).with_title(mean_score)
    return (
        f"{', '.join(choices)}, chosen from {' or '.join(numbers_tried)}, "
        f"validation {score_in_words}"
    )


def _chosen_in_words(tuning: Tuning) -> str:
    """The chosen values, such as ``learning rate 0.05``.

    Only settings with several tried values are named; the learning rate if none has.
    """
    names = tuning.names or ("lr",)
    return " and ".join(
        f"{NAMES_IN_WORDS[name]} {tuning.chosen[name]:.6g}" for name in names
    )


class Choice(NamedTuple):
    """The runs that remain when every decoder has one candidate."""

    runs: list[RunResult]
    tunings: dict[str, Tuning]
    """By key of the chosen candidate."""
    undecided_keys: tuple[str, ...]
    """Keys of candidates of which none was chosen: each lacks a validation accuracy."""


def decoder_family(
    settings: Mapping[str, Any], attention: str, head: str, states: str
) -> str:
    """A key that is equal for all candidates of one decoder.

    Args:
        settings: of the recipe, as JSON values.
        attention: the mechanism.
        head: the head.
        states: the name of the cache's states.
    """
    # Tuning seeds may hold out other rows than reporting seeds do.
    ignored = (*TUNED_SETTINGS, VAL_FOLDS)
    pairs = [
        (name, str(value))
        for name, value in settings.items()
        if name not in ignored and value is not None
    ]
    return repr((states, attention, head, sorted(pairs)))


def choose_candidates(
    runs: Sequence[RunResult], seeds: Collection[int] | None = None
) -> Choice:
    """Keep the candidate of every decoder that has the best mean validation accuracy.

    Candidates are runs whose recipes differ in ``TUNED_SETTINGS`` alone. The tuning
    seeds decide, and the other seeds of the chosen candidate are reported. If there are
    no tuning seeds, all seeds that every candidate has decide, and they are reported as
    well. Among equal accuracies the lower validation loss wins, then the smaller value.
    A candidate is out if one of the deciding seeds failed or is missing. If a decoder
    was tuned several times, the tuning with the most candidates decides.

    Args:
        runs: the runs to choose from.
        seeds: the seeds that decide, in place of the tuning seeds.
    """
    dropped_keys: set[str] = set()
    tunings: dict[str, Tuning] = {}
    undecided_keys: list[str] = []
    for candidates in _group_candidates(runs):
        if len(candidates) < 2:
            continue
        tuning = _tune(candidates, seeds)
        if tuning is None:
            # no candidate finished all deciding seeds: all of them stay
            undecided_keys += {
                run.key
                for runs_of_values in candidates.values()
                for run in runs_of_values
            }
            continue
        chosen_values = tuple(tuning.chosen.values())
        tunings |= {run.key: tuning for run in candidates[chosen_values]}
        dropped_keys |= _dropped_keys(candidates, chosen_values)

    remaining = [run for run in runs if run.key not in dropped_keys]
    return Choice(remaining, tunings, tuple(undecided_keys))


def _group_candidates(runs: Sequence[RunResult]) -> list[RunsByValues]:
    """For each decoder, its candidates: runs by learning rate and weight decay.

    A final model learns from all rows and is not tested. It is trained with the value
    that tuning chose, or with one that a person chose without tuning: that value is no
    candidate.
    """
    families: dict[str, dict[TunedValues, list[RunResult]]] = {}
    for run in runs:
        values = (run.recipe.lr, run.recipe.weight_decay)
        name = decoder_family(run.settings, run.attention, run.head, run.states)
        families.setdefault(name, {}).setdefault(values, []).append(run)

    grouped: list[RunsByValues] = []
    for candidates in families.values():
        tuned_candidates = {
            values: runs_of_values
            for values, runs_of_values in candidates.items()
            if any(run.tuning_only for run in runs_of_values)
        }
        # runs with the same settings, which name the test split, are alike in this
        first_run = next(iter(candidates.values()))[0]
        is_final = not first_run.evaluated
        grouped.append(tuned_candidates if is_final else candidates)
    return grouped


def _dropped_keys(candidates: RunsByValues, chosen_values: TunedValues) -> set[str]:
    """Keys of the runs of a decoder that a tuning leaves out.

    Args:
        candidates: the runs of each candidate, by its learning rate and weight decay.
        chosen_values: of the chosen candidate.
    """
    dropped: set[str] = set()
    for values, runs in candidates.items():
        keys = {run.key for run in runs}
        reporting_keys = {run.key for run in runs if not run.tuning_only}
        if values == chosen_values:
            # The tuning runs of the chosen candidate are shown only if it has no
            # runs of reporting seeds.
            if reporting_keys:
                dropped |= keys - reporting_keys
        elif runs[0].evaluated or not reporting_keys:
            # A final model that somebody trained with another value stays.
            dropped |= keys
    return dropped


def _tune(
    candidates: RunsByValues, requested_seeds: Collection[int] | None
) -> Tuning | None:
    """Choose among the candidates of one decoder.

    None if every candidate lacks a validation accuracy: a deciding seed failed, is
    missing, or has no validation rows.

    Args:
        candidates: the runs of each candidate, by its learning rate and weight decay.
        requested_seeds: the seeds that decide; None: the tuning seeds of the runs, or
            all seeds that every candidate has.
    """
    deciding = _deciding_runs(candidates, requested_seeds)
    seeds = deciding.seeds
    tried = {
        values: runs
        for values, runs in deciding.by_values.items()
        if _have_seeds(runs, seeds)
    }
    candidate_by_values = _candidates_by_values(tried, seeds)
    finished_candidates = {
        values: candidate
        for values, candidate in candidate_by_values.items()
        if candidate.accuracy is not None
    }
    if not finished_candidates:
        return None
    chosen_values = _best_values(finished_candidates)
    all_runs = [run for runs in candidates.values() for run in runs]
    has_tuning_seeds = requested_seeds is not None or any(map(_has_tuned, all_runs))
    reporting_seeds = {
        seed
        for run in candidates[chosen_values]
        if not run.tuning_only
        for seed in run.seeds
    }
    return Tuning(
        # the values by the names of their settings
        chosen=candidate_by_values[chosen_values].values,
        candidates=tuple(candidate_by_values.values()),
        untried=tuple(
            _by_name(values) for values in sorted(candidates) if values not in tried
        ),
        seeds=tuple(seeds),
        has_reporting_seeds=bool(has_tuning_seeds and reporting_seeds - set(seeds)),
        task=all_runs[0].task,
        # for draws of other validation rows, which candidates without a score have not
        candidate_runs=tuple(tuple(tried[values]) for values in finished_candidates),
    )


class _DecidingRuns(NamedTuple):
    """The runs that may decide among the candidates of one decoder."""

    seeds: list[int]
    """Seeds whose validation rows decide."""
    by_values: RunsByValues
    """Runs that hold out validation rows in the same way, by the tuned values. They may
    lack some of the seeds."""

    @property
    def num_candidates(self) -> int:
        """Number of candidates that have all of the seeds."""
        return sum(_have_seeds(runs, self.seeds) for runs in self.by_values.values())


def _deciding_runs(
    candidates: RunsByValues, requested_seeds: Collection[int] | None
) -> _DecidingRuns:
    """The runs that decide among the candidates of a decoder.

    A decoder may have been tuned several times, with other tuning seeds each. Then the
    tuning with the most candidates decides; of equal ones, that with the most seeds.

    Args:
        candidates: the runs of each candidate, by its learning rate and weight decay.
        requested_seeds: the seeds that decide; None: the tuning seeds of the runs, or
            all seeds that every candidate has.
    """
    all_runs = [run for runs in candidates.values() for run in runs]
    # the seeds of each tuning, and the number of folds of its validation rows
    tunings = {
        (run.tuning_seeds, run.recipe.val_folds or 0)
        for run in all_runs
        if _has_tuned(run)
    }
    if requested_seeds is not None or not tunings:
        seeds = requested_seeds
        if seeds is None:
            seeds = _common_seeds(candidates)
        return _DecidingRuns(sorted(seeds), _runs_with_alike_validation(candidates))

    deciding = [
        _DecidingRuns(sorted(tuning_seeds), _runs_with_folds(candidates, val_folds))
        for tuning_seeds, val_folds in sorted(tunings)
    ]
    return max(deciding, key=lambda runs: (runs.num_candidates, len(runs.seeds)))


def _common_seeds(candidates: RunsByValues) -> set[int]:
    """The seeds that every candidate has."""
    seeds_of_candidates = [
        {seed for run in runs for seed in run.seeds} for runs in candidates.values()
    ]
    return set.intersection(*seeds_of_candidates)


def _has_tuned(run: RunResult) -> bool:
    """Whether a run trained at least one of the tuning seeds that it names."""
    return bool(set(run.seeds) & set(run.tuning_seeds))


def _have_seeds(runs: Sequence[RunResult], seeds: Collection[int]) -> bool:
    """Whether runs have all of these seeds, finished or failed."""
    return set(seeds) <= {seed for run in runs for seed in run.seeds}


def _by_name(values: TunedValues) -> dict[str, float]:
    """Values of a candidate by the names of their settings."""
    return dict(zip(TUNED_SETTINGS, values, strict=True))


def _candidates_by_values(
    runs_by_values: RunsByValues, seeds: Sequence[int]
) -> dict[TunedValues, Candidate]:
    """The candidates with their mean validation over these seeds, ascending."""
    candidate_by_values = {}
    for values, runs in sorted(runs_by_values.items()):
        validation = mean_validation(runs, seeds)
        candidate_by_values[values] = Candidate(
            values=_by_name(values),
            accuracy=validation.accuracy,
            loss=validation.loss,
        )
    return candidate_by_values


def _best_values(candidate_by_values: Mapping[TunedValues, Candidate]) -> TunedValues:
    """The values of the candidate with the highest accuracy, then the lowest loss.

    Among equally good candidates it is the first.
    """

    def accuracy_then_loss(values: TunedValues) -> tuple[float | None, float]:
        candidate = candidate_by_values[values]
        return candidate.accuracy, -candidate.loss

    return max(candidate_by_values, key=accuracy_then_loss)


def _runs_with_alike_validation(candidates: RunsByValues) -> RunsByValues:
    """The runs of each candidate that hold out validation rows in the same way.

    In tuning, each seed may hold out another fold of the training rows
    (``val_folds``). Runs with other numbers of folds have other validation rows: those
    with the largest number count.
    """
    all_runs = [run for runs in candidates.values() for run in runs]
    largest_number = max(run.recipe.val_folds or 0 for run in all_runs)
    return _runs_with_folds(candidates, largest_number)


def _runs_with_folds(candidates: RunsByValues, val_folds: int) -> RunsByValues:
    """The runs of each candidate with this number of folds; 0: one validation set."""
    return {
        values: [run for run in runs if (run.recipe.val_folds or 0) == val_folds]
        for values, runs in candidates.items()
    }


class MeanValidation(NamedTuple):
    """Mean validation results over seeds, at their selected epochs."""

    accuracy: float | None
    """Or the score of another task; None if a seed failed, is missing or has none."""
    loss: float  # infinite if it is unknown


def mean_validation(runs: Sequence[RunResult], seeds: Sequence[int]) -> MeanValidation:
    """Mean validation accuracy (or R2, ...) and loss of these seeds."""
    unknown = MeanValidation(accuracy=None, loss=math.inf)
    accuracies: list[float] = []
    losses: list[float] = []
    runs_by_seed = first_run_by_seed(runs)
    for seed in seeds:
        run = runs_by_seed.get(seed)
        if run is None or seed in run.failed or run.select != "val":
            return unknown
        entry = _selected_entry(run, seed)
        score_key = run.task_definition.score_key
        if entry is None or entry.get(score_key) is None:
            return unknown
        loss = entry.get("selection_loss")
        accuracies.append(entry[score_key])
        losses.append(math.inf if loss is None else loss)
    if not accuracies:
        return unknown

    # fsum is exact: the order of the seeds must not break ties between candidates.
    return MeanValidation(
        accuracy=math.fsum(accuracies) / len(seeds),
        loss=math.fsum(losses) / len(seeds),
    )


def _selected_entry(run: RunResult, seed: int) -> dict[str, Any] | None:
    """The entry of a run's log for the selected epoch of a seed."""
    for entry in run.log:
        if entry["seed"] == seed and entry["epoch"] == run.epochs[seed]:
            return entry
    return None


def reporting_seeds_of(seeds: Sequence[int], tuning: Tuning | None) -> list[int]:
    """The reporting seeds among some seeds: without those that served tuning alone.

    ``tuning`` is that of their decoder; None where it was not tuned.
    """
    # without separate seeds, the seeds that tuned are reported too
    if tuning is None or not tuning.has_reporting_seeds:
        return list(seeds)
    return [seed for seed in seeds if seed not in tuning.seeds]
