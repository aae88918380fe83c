"""Select the runs that count, and tune the learning rate and weight decay of decoders.

A seed may be in several runs of one key: the first of them counts. Runs whose recipes
differ in learning rate or weight decay alone are candidates: the one with the best mean
validation accuracy is reported.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.runs.files import TEST_FILE
from gaam_decoder.runs.folders import ending
from gaam_decoder.runs.result import RunResult
from gaam_decoder.tasks import CLASSIFICATION, task_of

SPELLED_OUT = {"lr": "learning rate", "weight_decay": "weight decay"}
TUNED = tuple(SPELLED_OUT)
"""Numbers of a recipe in which the candidates of one decoder differ."""
HELD = "val_folds"
"""The setting by which each seed holds out another part of the training rows."""

TunedValues = tuple[float, ...]
"""Values of ``TUNED``, in that order."""
RunsByValues = Mapping[TunedValues, Sequence[RunResult]]


def first_runs(runs: Iterable[RunResult]) -> dict[int, RunResult]:
    """The run that counts for every seed: the first that has it, finished or failed.

    Runs are sorted by the ending that ``run_name`` gives them (``s0-9`` before ``s5``),
    then by the digest of their results. A renamed or moved run counts as before.
    """

    def sort_key(run: RunResult) -> tuple[str, ...]:
        digest = run.files[TEST_FILE].sha256 if TEST_FILE in run.files else ""
        return ending(run.key, run.seeds), digest, run.path.name, str(run.path)

    runs_by_seed: dict[int, RunResult] = {}
    for run in sorted(runs, key=sort_key):
        for seed in run.seeds:
            runs_by_seed.setdefault(seed, run)
    return dict(sorted(runs_by_seed.items()))


def by_seed(
    runs: Sequence[RunResult], read: Callable[[RunResult], NDArray[Any] | None]
) -> dict[int, NDArray[Any]]:
    """Each finished seed's entry of an array of the run that counts for the seed."""
    values_by_seed = {}
    for seed, run in first_runs(runs).items():
        if seed in run.failed:
            continue
        values = read(run)
        if values is not None:
            values_by_seed[seed] = values[run.seeds.index(seed)]
    return values_by_seed


class Candidate(NamedTuple):
    """Values of ``TUNED`` that were tried, and their ``mean_validation``."""

    values: dict[str, float]
    accuracy: float | None
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the learning rate and weight decay of a decoder were tuned."""

    chosen: dict[str, float]
    candidates: tuple[Candidate, ...]
    """All of them, ascending."""
    seeds: tuple[int, ...]
    """Seeds whose validation rows decided."""
    apart: bool
    """Whether those seeds are left out of the reported results."""
    task: str = CLASSIFICATION.name
    """Its ``Task.selection`` is the accuracy of the candidates."""
    tried: tuple[tuple[RunResult, ...], ...] = ()
    """Deciding runs of each candidate that has a mean validation accuracy."""

    def answers(
        self, relations: Collection[str] = ()
    ) -> Iterator[
        tuple[NDArray[Any], list[NDArray[np.float32]], list[NDArray[np.int32]]]
    ]:
        """Validation hits, test logits and row numbers of every candidate.

        Yields:
            For each candidate: whether it was right on each validation row, or what the
            row contributes to the score of the task (a mean over
            the seeds where they share these rows); the test logits of each seed; and
            the numbers of the validation rows in each of the ``relations`` that the
            runs have. Nothing more where a run has no validation or test rows.
        """
        for runs in self.tried:
            runs_by_seed = first_runs(runs)
            hits: list[NDArray[Any]] = []
            logits: list[NDArray[np.float32]] = []
            numbers: list[list[NDArray[np.int32]]] = []
            for seed in self.seeds:
                run = runs_by_seed[seed]
                validation = run.validation
                if validation is None or not run.evaluated:
                    return
                index = run.seeds.index(seed)
                logits_VC, label_V = validation.of_seed(index)
                hits.append(run.of_task.contributions(logits_VC, label_V))
                logits.append(run.finished_logits()[run.finished.index(seed)])
                numbers.append(validation.same_of_seed(index, relations))

            if runs[0].recipe.val_folds is None:
                yield np.mean(hits, axis=0), logits, numbers[0]
                continue

            # Every seed has validation rows of its own: all of them together decide.
            all_numbers = [
                np.concatenate(numbers_of_seeds)
                for numbers_of_seeds in zip(*numbers, strict=True)
            ]
            yield np.concatenate(hits), logits, all_numbers

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
        """The settings of ``TUNED`` for which several values were tried."""
        return tuple(name for name in TUNED if len(set(self._values_of(name))) > 1)

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
            "seeds": list(self.seeds),
            "reported_on_other_seeds": self.apart,
            "at_edge": list(self.at_edge),
        }


def tuning_in_words(tunings: Sequence[Tuning]) -> str:
    """What was chosen: ``learning rate 0.05 of 4, validation 98.9%``.

    Over folds, the accuracy is their mean.
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
    accuracy = math.fsum(tuning.accuracy for tuning in tunings) / len(tunings)
    return (
        f"{', '.join(choices)} of {' or '.join(numbers_tried)}, "
        f"validation {task_of(tunings[0].task).titled(accuracy)}"
    )


def _chosen_in_words(tuning: Tuning) -> str:
    names = tuning.names or TUNED[:1]
    return " and ".join(
        f"{SPELLED_OUT[name]} {tuning.chosen[name]:.6g}" for name in names
    )


class Choice(NamedTuple):
    """The runs that remain when every decoder has one candidate."""

    runs: list[RunResult]
    tunings: dict[str, Tuning]
    """By key of the chosen candidate."""
    unchosen: tuple[str, ...]
    """Keys of candidates among which validation could not choose."""


def family(settings: Mapping[str, Any], attention: str, head: str, states: str) -> str:
    """A text that is equal for all candidates of one decoder."""
    # Tuning seeds may hold out other rows than reporting seeds do.
    ignored = (*TUNED, HELD)
    pairs = [
        (name, str(value))
        for name, value in settings.items()
        if name not in ignored and value is not None
    ]
    return repr((states, attention, head, sorted(pairs)))


def choose(runs: Sequence[RunResult], seeds: Collection[int] | None = None) -> Choice:
    """Keep the candidate of every decoder that has the best mean validation accuracy.

    Candidates are runs whose recipes differ in ``TUNED`` alone. Of final models only
    values with tuning runs are candidates. The tuning seeds decide, and the other seeds
    of the chosen candidate are reported; without tuning seeds, all seeds that every
    candidate has decide and are reported. Among equal accuracies the lower validation
    loss wins, then the smaller value. A candidate is out if one of the deciding seeds
    failed or is missing.

    Args:
        runs: the runs to choose from.
        seeds: the seeds that decide, in place of the tuning seeds.
    """
    dropped: set[str] = set()
    tunings: dict[str, Tuning] = {}
    unchosen: list[str] = []
    for candidates in _group_candidates(runs):
        if len(candidates) < 2:
            continue
        tuning = _tune(candidates, seeds)
        if tuning is None:
            unchosen += {
                run.key
                for runs_of_values in candidates.values()
                for run in runs_of_values
            }
            continue
        chosen_values = tuple(tuning.chosen.values())
        tunings |= {run.key: tuning for run in candidates[chosen_values]}
        dropped |= _dropped_keys(candidates, chosen_values)

    remaining = [run for run in runs if run.key not in dropped]
    return Choice(remaining, tunings, tuple(unchosen))


def _group_candidates(runs: Sequence[RunResult]) -> list[RunsByValues]:
    """The candidates of every decoder: its runs by their values of ``TUNED``."""
    families: dict[str, dict[TunedValues, list[RunResult]]] = {}
    for run in runs:
        values = (run.recipe.lr, run.recipe.weight_decay)
        name = family(run.settings, run.attention, run.head, run.states)
        families.setdefault(name, {}).setdefault(values, []).append(run)

    grouped: list[RunsByValues] = []
    for candidates in families.values():
        is_evaluated = next(iter(candidates.values()))[0].evaluated
        if is_evaluated:
            grouped.append(candidates)
        else:
            # Only values that were tuned are candidates for a final model.
            grouped.append(
                {
                    values: runs_of_values
                    for values, runs_of_values in candidates.items()
                    if any(run.tuning_only for run in runs_of_values)
                }
            )
    return grouped


def _dropped_keys(candidates: RunsByValues, chosen_values: TunedValues) -> set[str]:
    """Keys of the runs that a tuning leaves out."""
    dropped: set[str] = set()
    for values, runs in candidates.items():
        keys = {run.key for run in runs}
        reporting_keys = {run.key for run in runs if not run.tuning_only}
        if values == chosen_values:
            # Tuning runs stand for the chosen candidate only if it has no others.
            if reporting_keys:
                dropped |= keys - reporting_keys
        elif runs[0].evaluated or not reporting_keys:
            # A final model that somebody trained with another value stays.
            dropped |= keys
    return dropped


def _tune(
    candidates: RunsByValues, requested_seeds: Collection[int] | None
) -> Tuning | None:
    """Choose among the candidates of one decoder; None where no candidate can win."""
    all_runs = [run for runs in candidates.values() for run in runs]
    seeds_by_values = {
        values: {seed for run in runs for seed in run.seeds}
        for values, runs in candidates.items()
    }
    if requested_seeds is None:
        tuning_seeds = {seed for run in all_runs for seed in run.tuning_seeds}
    else:
        tuning_seeds = set(requested_seeds)
    common_seeds = set.intersection(*seeds_by_values.values())
    deciding_seeds = sorted(tuning_seeds or common_seeds)

    # Where some seeds hold out parts in turn, only those decide.
    in_turn = any(run.recipe.val_folds for run in all_runs)
    deciding_runs = {
        values: [run for run in runs if bool(run.recipe.val_folds) == in_turn]
        for values, runs in candidates.items()
    }

    # Ascending values: among equals max() takes the first, which is the smallest.
    scored: dict[TunedValues, Candidate] = {}
    for values, runs in sorted(deciding_runs.items()):
        accuracy, loss = mean_validation(runs, deciding_seeds)
        scored[values] = Candidate(
            dict(zip(TUNED, values, strict=True)), accuracy, loss
        )
    able = [values for values in scored if scored[values].accuracy is not None]
    if not able:
        return None
    winner = max(
        able, key=lambda values: (scored[values].accuracy, -scored[values].loss)
    )
    other_seeds = seeds_by_values[winner] - set(deciding_seeds)
    return Tuning(
        chosen=scored[winner].values,
        candidates=tuple(scored.values()),
        seeds=tuple(deciding_seeds),
        apart=bool(tuning_seeds and other_seeds),
        task=all_runs[0].task,
        tried=tuple(tuple(deciding_runs[values]) for values in able),
    )


def mean_validation(
    runs: Sequence[RunResult], seeds: Sequence[int]
) -> tuple[float | None, float]:
    """Mean validation accuracy (or R2, ...) and loss over seeds, at selected epochs.

    The accuracy is None where a seed failed, is missing or has no validation accuracy;
    an unknown loss is infinite.
    """
    unknown = (None, math.inf)
    accuracies: list[float] = []
    losses: list[float] = []
    runs_by_seed = first_runs(runs)
    for seed in seeds:
        run = runs_by_seed.get(seed)
        if run is None or seed in run.failed or run.select != "val":
            return unknown
        entry = _selected_entry(run, seed)
        score_key = run.of_task.score_key
        if entry is None or entry.get(score_key) is None:
            return unknown
        loss = entry.get("selection_loss")
        accuracies.append(entry[score_key])
        losses.append(math.inf if loss is None else loss)
    if not accuracies:
        return unknown

    # fsum is exact: the order of the seeds must not break ties between candidates.
    return math.fsum(accuracies) / len(seeds), math.fsum(losses) / len(seeds)


def _selected_entry(run: RunResult, seed: int) -> dict[str, Any] | None:
    """The entry of a run's log for the selected epoch of a seed."""
    for entry in run.log:
        if entry["seed"] == seed and entry["epoch"] == run.epochs[seed]:
            return entry
    return None


def reported(seeds: Sequence[int], tuning: Tuning | None) -> list[int]:
    """The reporting seeds among these: all but those that a tuning leaves out."""
    if tuning is None or not tuning.apart:
        return list(seeds)
    return [seed for seed in seeds if seed not in tuning.seeds]
