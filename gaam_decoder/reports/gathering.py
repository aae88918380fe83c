"""Gather the runs of a report into entries, by the rows that test them.

A table has the entries on the same test rows. P parts (1, or the folds of
cross-validations), N test rows.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief
from gaam_cache.store.files import digest_of
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.class_order import class_places
from gaam_decoder.reports.entries import BY_FOLD, SURE_SHARE, Entry, split_seed_of
from gaam_decoder.reports.groups import TableGroups, table_groups
from gaam_decoder.reports.scoring import Part, score_entry, score_of
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    TUNED_SETTINGS,
    Tuning,
    first_run_by_seed,
    reporting_seeds_of,
)
from gaam_decoder.specs import Settings
from gaam_decoder.stats.choice import SimulatedChoices, simulate_choices
from gaam_decoder.stats.groups import joined, row_groups
from gaam_decoder.stats.scores.base import Answers, Score

SeedFold = tuple[int, int]  # split seed, number of the fold
FoldRuns = dict[SeedFold, list[RunResult]]  # the runs on every fold
# The states, number of folds, training split and groups of one cross-validation, and of
# its repeats with other split seeds.
Partition = tuple[str, ...]


class TestedEntries(NamedTuple):
    """The entries of one table: all are tested on the same rows of the data."""

    tested_on: str  # the test rows in words
    key: tuple[object, ...]  # identity of the test rows, whichever runs are there
    entries: list[Entry]  # the best first
    incomplete: list[str]  # decoders left out because they lack folds
    groups: TableGroups
    labels: NDArray[Any]  # of the test rows, as ``RunResult.targets``


def entries_by_test(
    runs: Sequence[RunResult],
    tunings: Mapping[str, Tuning],
    score: str,
    temperature: bool,
    grouped_by: str | None = None,
    left_out_runs: Sequence[RunResult] = (),
    class_order: Sequence[str] = (),
) -> Iterator[TestedEntries]:
    """Group all runs into entries, and the entries by their test rows.

    The rows of different folds are different test rows. If a mechanism has all folds,
    its test rows are put one after the other: every row of the split is tested once, by
    decoders that did not learn from it. Repeats of a cross-validation are one table
    too. Any other fold is a table of its own.

    Args:
        runs: the runs to report.
        tunings: key of a run -> the tuning that chose its settings.
        score: name of the score that tables compare.
        temperature: whether to fit temperatures to the probabilities.
        grouped_by: kept column whose values are the groups of the test rows, if any.
        left_out_runs: runs that filters left out; only the groups of rows that they
            recorded count.
        class_order: all classes, the lowest first; empty where they are numbers, or the
            score needs no order.
    """
    maker = _TableMaker(
        runs, tunings, score, temperature, grouped_by, left_out_runs, class_order
    )

    # cross-validations of which an entry has every fold, each with its split seed
    whole_splits: set[tuple[Partition, int]] = set()
    for partition, folds_by_name in _folds_by_partition(runs, tunings).items():
        num_folds = int(partition[1])
        numbers = range(1, num_folds + 1)
        split_seeds = _whole_split_seeds(folds_by_name.values(), numbers)
        if split_seeds:
            whole_splits |= {(partition, seed) for seed in split_seeds}
            folds = list(folds_by_name.values())
            yield maker.cross_validation(partition, folds, split_seeds, numbers)

    for key, runs_by_recipe in _runs_by_single_test(runs, whole_splits).items():
        yield maker.single_test(key, list(runs_by_recipe.values()))


def _folds_by_partition(
    runs: Sequence[RunResult], tunings: Mapping[str, Tuning]
) -> dict[Partition, dict[str, FoldRuns]]:
    """Runs of folds by cross-validation, then by decoder, then by fold.

    Runs of one decoder have the same mechanism, head and settings. Runs without folds
    are left out.
    """
    by_partition: dict[Partition, dict[str, FoldRuns]] = {}
    for run in runs:
        fold = run.recipe.fold
        if fold is None:
            continue

        # Folds of one entry may differ in their split seed and in tuned settings.
        ignored = {"fold", "split_seed"}
        if run.key in tunings:
            ignored.update(TUNED_SETTINGS)
        shared = [
            (name, str(value))
            for name, value in run.settings.items()
            if name not in ignored
        ]
        name = repr((run.attention, run.head, sorted(shared)))

        by_name = by_partition.setdefault(_partition(run), {})
        seed_fold = (split_seed_of(run), fold.number)
        by_name.setdefault(name, {}).setdefault(seed_fold, []).append(run)
    return by_partition


def _whole_split_seeds(folds: Iterable[FoldRuns], numbers: range) -> list[int]:
    """The split seeds for which the most complete decoder has a run of every fold.

    A split seed divides the rows into folds: one seed is one cross-validation. The most
    complete decoder has every fold of more split seeds than any other.

    Args:
        folds: for each decoder, its runs by split seed and fold.
        numbers: the numbers of all folds, from 1.

    Returns:
        Sorted; empty if no decoder has every fold of any split seed.
    """
    complete_seeds_of_decoders: list[set[int]] = []
    for runs_by_fold in folds:
        split_seeds = {split_seed for split_seed, _ in runs_by_fold}
        complete_seeds: set[int] = set()
        for split_seed in split_seeds:
            if all((split_seed, number) in runs_by_fold for number in numbers):
                complete_seeds.add(split_seed)
        complete_seeds_of_decoders.append(complete_seeds)
    most_complete: set[int] = max(complete_seeds_of_decoders, key=len)
    return sorted(most_complete)


def _runs_by_single_test(
    runs: Sequence[RunResult], whole_splits: set[tuple[Partition, int]]
) -> dict[tuple[object, ...], dict[str, list[RunResult]]]:
    """Runs by the rows that test them, and then by the key of their recipe.

    The key of the test rows begins with the test split and the fold. ``whole_splits``
    are cross-validations, each with its split seed, of which a decoder has every fold.
    Runs of their folds are left out: one table has all their test rows.
    """
    by_test: dict[tuple[object, ...], dict[str, list[RunResult]]] = {}
    for run in runs:
        fold = run.recipe.fold
        partition = _partition(run)
        seed = split_seed_of(run)
        if fold is not None and (partition, seed) in whole_splits:
            continue

        # Labels alone may agree by accident, so the split is part of the key.
        split = (run.recipe.test_split, fold, partition, seed if fold else 0)
        key = (*split, run.majority_accuracy, digest_of(run.labels.tobytes()))
        by_test.setdefault(key, {}).setdefault(run.key, []).append(run)
    return by_test


@dataclass(frozen=True)
class _TableMaker:
    """Makes the entries of each table from the runs of a report."""

    runs: Sequence[RunResult]
    tunings: Mapping[str, Tuning]  # by the key of a run
    score_name: str  # of the score that the tables compare
    temperature: bool  # whether temperatures are fitted
    grouped_by: str | None  # kept column that says which rows belong together
    left_out_runs: Sequence[RunResult]  # runs that filters left out
    class_order: Sequence[str]  # all classes, the lowest first; or empty

    def cross_validation(
        self,
        partition: Partition,
        folds: Sequence[FoldRuns],
        split_seeds: list[int],
        numbers: range,
    ) -> TestedEntries:
        """The table of all entries that have every fold of these split seeds.

        Args:
            partition: identity of the cross-validation: its states, number of folds,
                training split and groups.
            folds: for each decoder, its runs by split seed and fold.
            split_seeds: of the repeats of the cross-validation.
            numbers: the numbers of all folds.
        """
        required = [(seed, number) for seed in split_seeds for number in numbers]
        complete = []
        lacking: set[str] = set()
        for runs_by_fold in folds:
            num_present = len(runs_by_fold.keys() & set(required))
            if num_present == len(required):
                complete.append(runs_by_fold)
            elif num_present > 0:
                lacking |= _decoder_names(runs_by_fold)

        times = f"{len(split_seeds)} times" if len(split_seeds) > 1 else "all"
        split = _split_in_words(complete[0][required[0]][0], split_seeds)
        where = f"{times} {len(numbers)} folds{split}"
        decoders: list[list[Part]] = [
            [runs_by_fold[seed_fold] for seed_fold in required]
            for runs_by_fold in complete
        ]
        return self._tested(where, ("folds", *partition), decoders, sorted(lacking))

    def single_test(self, key: tuple[Any, ...], parts: Sequence[Part]) -> TestedEntries:
        """The table of all entries on one test split, or on one fold.

        Args:
            key: of the test rows; it begins with the test split and the fold.
            parts: the runs of each entry.
        """
        test_split, fold, *_ = key
        where = f"test split '{test_split}'"
        if fold:
            first = parts[0][0]
            split = _split_in_words(first, [split_seed_of(first)])
            where = f"fold {fold.number} of {fold.total}{split}"
        return self._tested(where, key, [[part] for part in parts], [])

    def _tested(
        self,
        where: str,
        key: tuple[object, ...],
        decoders: Sequence[Sequence[Part]],
        incomplete: list[str],
    ) -> TestedEntries:
        """The sorted entries on one set of test rows, with the groups of these rows.

        Args:
            where: the test rows in words.
            key: identity of the test rows.
            decoders: for each entry, its runs on every part of the test rows.
            incomplete: names of decoders that lack folds.
        """
        first_decoder = decoders[0]
        repeats = len({split_seed_of(part[0]) for part in first_decoder})

        # Every part of the test rows, with the runs of all decoders on it.
        tests = [
            [run for part in parts for run in part]
            for parts in zip(*decoders, strict=True)
        ]
        fingerprint = first_decoder[0][0].cache.fingerprint
        runs_of_cache = [
            run
            for run in (*self.runs, *self.left_out_runs)
            if run.cache.fingerprint == fingerprint
        ]
        groups = table_groups(tests, runs_of_cache, repeats, self.grouped_by)
        entries = [
            _make_entry(
                parts,
                self.tunings,
                self._score_of_classes(parts),
                self.temperature,
                groups,
            )
            for parts in decoders
        ]

        # A repeated cross-validation tests every row several times, but its label is
        # listed once: sort by row number, and take one of its repeats.
        label_N = np.concatenate([part[0].targets for part in first_decoder])
        if repeats > 1:
            row_N = np.concatenate([part[0].test_rows for part in first_decoder])
            label_N = label_N[np.argsort(row_N, kind="stable")[::repeats]]
        entries.sort(key=_rank)
        return TestedEntries(where, key, entries, incomplete, groups, label_N)

    def _score_of_classes(self, parts: Sequence[Part]) -> Score:
        """The score, with the order of the classes where it needs one."""
        score = score_of(self.score_name)
        if score.needs_class_order:
            score.class_places = class_places(parts[0][0].cache.names, self.class_order)
        return score


def _rank(entry: Entry) -> tuple[object, ...]:
    """Sort key of an entry in its table: the best mean first, then by name.

    Entries without a mean stand last.
    """
    mean = math.inf if entry.compared_score.mean is None else entry.compared_score.mean
    if math.isfinite(mean) and entry.compared_score.score.larger_is_better:
        mean = -mean
    some_layers = entry.recipe.get("layers") is not None
    size = entry.num_drawn_rows or math.inf
    recipe = str(entry.recipe)
    return mean, some_layers, entry.attention, entry.head, entry.select, size, recipe


def _decoder_names(runs_by_fold: FoldRuns) -> set[str]:
    """Mechanism and head of the runs of each fold, such as ``gaam + linear``."""
    first_runs_of_folds = [runs[0] for runs in runs_by_fold.values()]
    return {
        f"{brief(run.attention)} + {brief(run.head)}" for run in first_runs_of_folds
    }


def _partition(run: RunResult) -> Partition:
    """States, number of folds, training split and groups of a run's cross-validation.

    Of a run without folds, its states and an empty text.
    """
    fold = run.recipe.fold
    if fold is None:
        return run.states, ""
    groups = run.recipe.groups
    digest = str(groups.digest if groups else None)
    return run.states, str(fold.total), run.recipe.train_split, digest


def _split_in_words(run: RunResult, seeds: list[int]) -> str:
    """The split that folds divide, the split seeds and the groups, for a title."""
    text = f" of the '{run.recipe.train_split}' split"
    if seeds != [0]:
        text += f", split seed {spell_numbers(seeds)}"
    if run.recipe.groups:
        text += f", {groups_kept(run)}"
    return text


def groups_kept(run: RunResult) -> str:
    """Say by which column or file the folds of a run keep groups of rows together.

    Such as ``groups of 'speaker' kept together``.
    """
    groups = run.recipe.groups
    source = groups.source if groups else ""
    if not groups or not source:
        return "groups kept together"
    # a column is named as it is, of a file the name without its folder
    if groups.kind == "file":
        return f"groups of the file '{brief(Path(source).name, 40)}' kept together"
    return f"groups of '{brief(source, 40)}' kept together"


def _make_entry(
    parts: Sequence[Part],
    tunings: Mapping[str, Tuning],
    score: Score,
    temperature: bool,
    groups: TableGroups,
) -> Entry:
    """Make one entry from its runs on each part of the test rows (1, or the folds).

    Args:
        parts: its runs on each part.
        tunings: key of a run -> the tuning that chose its settings.
        score: the score that the table compares.
        temperature: whether to fit temperatures to the probabilities.
        groups: the groups of the test rows.
    """
    first = parts[0][0]
    runs_by_seed = [_reported_runs(part, tunings) for part in parts]
    seeds = set.intersection(*map(set, runs_by_seed))
    recipe, code = _shared_recipe(parts)
    num_repeats = len({split_seed_of(part[0]) for part in parts})
    counted = _counted_runs(parts, seeds)

    tuned_parts = [part for part in parts if part[0].key in tunings]
    entry_tunings = tuple(tunings[part[0].key] for part in tuned_parts)
    choices = _choices(tuned_parts, entry_tunings, score, groups.relations)
    scores = score_entry(parts, sorted(seeds), num_repeats, score, temperature, groups)
    late_seeds = _late_seeds(counted, scores.finished)
    return Entry(
        attention=first.attention,
        head=first.head,
        select=first.select,
        parameters=first.parameters,
        labels_shuffled=first.shuffled,
        recipe=recipe,
        code=code,
        tunings=entry_tunings,
        choices=choices,
        folds=len(parts) // num_repeats,
        repeats=num_repeats,
        seeds=tuple(sorted(seeds)),
        seconds=_seconds(runs_by_seed, seeds),
        failed=_failed_seeds(runs_by_seed, seeds),
        fitted_at_once=bool(first.fit),
        on_training_rows=first.recipe.on_training_rows,
        num_drawn_rows=_fewest_drawn(counted),
        seeds_still_learning=late_seeds,
        training_too_short=_is_too_short(
            late_seeds, scores.finished, recipe, len(parts)
        ),
        settings_at_edge=_settings_at_edge(entry_tunings, choices),
        runs=counted,
        grouped_by=groups.relations,
        **vars(scores),
    )


def _late_seeds(runs: Sequence[RunResult], finished: Sequence[int]) -> tuple[int, ...]:
    """Finished seeds whose best epoch is the last one, in any fold."""
    late = {seed for run in runs for seed in run.still_learning}
    return tuple(sorted(late & set(finished)))


def _is_too_short(
    late_seeds: Sequence[int],
    finished: Sequence[int],
    recipe: Mapping[str, Any],
    num_parts: int,
) -> bool:
    """Whether more seeds had their best epoch last than chance explains.

    Then a longer training may be better. Chance means that the accuracy no longer
    changes, so that any epoch may be best.
    """
    return bool(late_seeds) and stats.later_than_chance(
        len(late_seeds), len(finished), recipe["epochs"], num_parts
    )


def _seconds(
    runs_by_seed: Sequence[Mapping[int, RunResult]], seeds: set[int]
) -> dict[int, float]:
    """Seconds of training of each seed, in all folds together."""
    return {
        seed: sum(runs[seed].seconds[seed] for runs in runs_by_seed) for seed in seeds
    }


def _fewest_drawn(runs: Sequence[RunResult]) -> int | None:
    """The fewest training rows that were drawn; None where all were used."""
    drawn = [run.drawn.total for run in runs if run.drawn]
    return min(drawn, default=None)


def _reported_runs(part: Part, tunings: Mapping[str, Tuning]) -> dict[int, RunResult]:
    """Seed -> the run that counts for it, without seeds that only tune settings.

    Args:
        part: the runs of an entry on one part of the test rows.
        tunings: key of a run -> the tuning that chose its settings.
    """
    runs = first_run_by_seed(part)
    seeds = reporting_seeds_of(tuple(runs), tunings.get(part[0].key))
    return {seed: runs[seed] for seed in seeds}


def _failed_seeds(
    runs_by_seed: Sequence[Mapping[int, RunResult]], seeds: set[int]
) -> dict[int, str]:
    """Failed seed -> the reason, in its first fold that failed.

    Args:
        runs_by_seed: for each fold, the run that counts for a seed.
        seeds: of the entry.
    """
    reasons: dict[int, str] = {}
    for seed in seeds:
        for runs in runs_by_seed:
            run = runs[seed]
            if seed in run.failed:
                reason = run.failed[seed]
                if len(runs_by_seed) > 1:
                    reason = f"fold {run.recipe.fold}: {reason}"
                reasons[seed] = reason
                break
    return reasons


def _shared_recipe(parts: Sequence[Part]) -> tuple[Settings, str]:
    """The settings of an entry, and the code of its mechanism if a plugin has it.

    Settings in which its folds differ get one value in place of several.
    """
    recipes = [dict(part[0].settings) for part in parts]
    recipe = recipes[0]

    # The mechanism names its plugin; as a setting it would keep the entry from
    # being compared with others.
    code = ""
    other_plugins = {}
    for name, plugin in recipe.pop("plugins", {}).items():
        if name.startswith("mechanism "):
            code += plugin
        else:
            other_plugins[name] = plugin
    if other_plugins:
        recipe["plugins"] = other_plugins

    if len(parts) > 1:
        for name in TUNED_SETTINGS:
            if len({fold_recipe.get(name) for fold_recipe in recipes}) > 1:
                recipe[name] = BY_FOLD
        recipe["fold"] = None
    split_seeds = sorted({split_seed_of(part[0]) for part in parts})
    if len(split_seeds) > 1:
        recipe["split_seed"] = ", ".join(map(str, split_seeds))
    return recipe, code


def _counted_runs(parts: Sequence[Part], seeds: set[int]) -> tuple[RunResult, ...]:
    """The runs with a seed of the entry; where a part has none, all its runs."""
    counted: list[RunResult] = []
    for part in parts:
        counted += [run for run in part if set(run.seeds) & seeds] or part
    return tuple(counted)


def _choices(
    tuned_parts: Sequence[Part],
    tunings: Sequence[Tuning],
    score: Score,
    grouped_by: Sequence[str],
) -> tuple[SimulatedChoices, ...]:
    """Simulate how other validation rows would have tuned, for each tuned part.

    Left out are tunings whose runs do not record their validation answers.

    Args:
        tuned_parts: the runs of each tuned part of the test rows.
        tunings: the tuning of each of these parts.
        score: the score that the table compares.
        grouped_by: relations that put validation rows together.
    """
    choices = []
    for part, tuning in zip(tuned_parts, tunings, strict=True):
        choice = _choice(part[0].targets, tuning, score, grouped_by)
        if choice is not None:
            choices.append(choice)
    return tuple(choices)


def _choice(
    labels: NDArray[Any],
    tuning: Tuning,
    score: Score,
    grouped_by: Sequence[str],
) -> SimulatedChoices | None:
    """Simulate which candidate other validation rows would have chosen.

    None without two candidates that have a score.

    Args:
        labels: of the test rows.
        tuning: its candidates have answers to validation rows and test logits.
        score: of the test logits.
        grouped_by: relations that put validation rows together.
    """
    # of every candidate: right validation rows, and test scores of its seeds
    right: list[NDArray[Any]] = []
    values: list[list[float | None]] = []
    groups = None
    for right_N, logits, group_numbers in tuning.validation_answers(grouped_by):
        right.append(right_N)
        if group_numbers and groups is None:
            groups = row_groups(joined(group_numbers))
        values.append([score.value(Answers(logits_NC, labels)) for logits_NC in logits])
    if len(right) < 2 or any(None in candidate_values for candidate_values in values):
        return None
    return simulate_choices(np.stack(right), np.array(values, np.float64), groups)


def _settings_at_edge(
    tunings: Sequence[Tuning], choices: Sequence[SimulatedChoices]
) -> frozenset[str]:
    """Tuned settings whose smallest or largest value won; none if chance may be why."""
    if any(choice.share < SURE_SHARE for choice in choices):
        return frozenset()
    return frozenset(name for tuning in tunings for name in tuning.at_edge)
