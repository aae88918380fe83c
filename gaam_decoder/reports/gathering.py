"""Gather the runs of a report into entries, by the rows that test them.

A table has the entries on the same test rows. P parts (1, or the folds of
cross-validations), N test rows.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief
from gaam_cache.store.files import digest_of
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.class_order import class_places
from gaam_decoder.reports.entries import (
    BY_FOLD,
    Entry,
    EntryScores,
    MeasuredScore,
    is_unsure,
    split_seed_of,
)
from gaam_decoder.reports.groups import TableGroups, table_groups
from gaam_decoder.reports.scoring import (
    PartRuns,
    RunsByPart,
    score_entry,
    score_of,
)
from gaam_decoder.runs.groups import count_train_rows
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    TUNED_SETTINGS,
    Tuning,
    first_run_by_seed,
    reporting_seeds_of,
)
from gaam_decoder.specs import Settings
from gaam_decoder.stats.choice import SimulatedChoices, simulate_choices
from gaam_decoder.stats.groups import join_relations, row_groups
from gaam_decoder.stats.scores.base import Answers, Score

USUAL_SPLIT_SEED = 0


class CrossValidation(NamedTuple):
    """What the repeats of one cross-validation share: all but their split seed."""

    states: str  # name of the states, as ``RunResult.states``
    num_folds: int
    train_split: str  # the split that is divided into folds
    groups_digest: str | None  # of the groups that the folds keep together; None: none


class Repeat(NamedTuple):
    """A cross-validation under one split seed, which divides the rows into folds."""

    cross_validation: CrossValidation
    split_seed: int


class SeedFold(NamedTuple):
    """A fold of a repeat of a known cross-validation."""

    split_seed: int
    number: int  # of the fold, from 1


FoldRuns = dict[SeedFold, list[RunResult]]
"""The runs of one decoder on each fold; those on one fold differ in their seeds."""


class TestedEntries(NamedTuple):
    """The entries of one table: all are tested on the same rows of the data."""

    tested_on: str  # the test rows in words
    key: tuple[object, ...]  # identity of the test rows, whichever runs are there
    entries: list[Entry]  # the best first
    incomplete: list[str]  # decoders left out because they lack folds
    left_out_repeats: list[int]  # split seeds of which another decoder lacks folds
    groups: TableGroups
    labels: NDArray[Any]  # of the test rows, as ``RunResult.targets``


def entries_by_test(
    runs: Sequence[RunResult],
    tunings: Mapping[str, Tuning],
    *,
    score_name: str,
    temperature: bool,
    grouped_by: str | None,
    left_out_runs: Sequence[RunResult],
    class_order: Sequence[str],
) -> Iterator[TestedEntries]:
    """Group all runs into entries, and the entries by their test rows.

    If a decoder has a run of every fold of a cross-validation, all folds share one
    table: every row of the split is tested once, by a decoder that did not learn from
    it. Repeats with other split seeds stand in the same table if all of its decoders
    have them. Any other fold has other test rows, and is a table of its own.

    Args:
        runs: the runs to report.
        tunings: key of a run -> the tuning that chose its settings.
        score_name: of the score that tables compare.
        temperature: whether to fit temperatures to the probabilities.
        grouped_by: kept column whose values are the groups of the test rows, if any.
        left_out_runs: runs that filters left out; only the groups of rows that they
            recorded count.
        class_order: all classes, the lowest first; empty where they are numbers, or the
            score needs no order.
    """
    maker = _TableMaker(
        runs, tunings, score_name, temperature, grouped_by, left_out_runs, class_order
    )

    complete_repeats: set[Repeat] = set()
    folds_by_cross_validation = _folds_by_cross_validation(runs, tunings)
    for cross_validation, runs_by_decoder in folds_by_cross_validation.items():
        decoders = list(runs_by_decoder.values())
        repeats = _complete_repeats(decoders, cross_validation.num_folds)
        if repeats.any_decoder:
            complete_repeats |= {
                Repeat(cross_validation, seed) for seed in repeats.any_decoder
            }
            yield maker.cross_validation(cross_validation, decoders, repeats)

    for key, runs_by_recipe in _runs_by_single_test(runs, complete_repeats).items():
        yield maker.single_test(key, list(runs_by_recipe.values()))


def _folds_by_cross_validation(
    runs: Sequence[RunResult], tunings: Mapping[str, Tuning]
) -> dict[CrossValidation, dict[str, FoldRuns]]:
    """Runs of folds by cross-validation, then by decoder, then by fold.

    Runs of one decoder have the same mechanism, head and settings. Runs without folds
    are left out.
    """
    by_cross_validation: dict[CrossValidation, dict[str, FoldRuns]] = {}
    for run in runs:
        fold = run.recipe.fold
        cross_validation = _cross_validation_of(run)
        if fold is None or cross_validation is None:
            continue

        # Folds of one decoder may differ in their split seed and in tuned settings.
        ignored = {"fold", "split_seed"}
        if run.key in tunings:
            ignored.update(TUNED_SETTINGS)
        shared_settings = [
            (name, str(value))
            for name, value in run.settings.items()
            if name not in ignored
        ]
        decoder = repr((run.attention, run.head, sorted(shared_settings)))

        runs_by_decoder = by_cross_validation.setdefault(cross_validation, {})
        runs_by_fold = runs_by_decoder.setdefault(decoder, {})
        seed_fold = SeedFold(split_seed_of(run), fold.number)
        runs_by_fold.setdefault(seed_fold, []).append(run)
    return by_cross_validation


class _CompleteRepeats(NamedTuple):
    """Split seeds of a cross-validation: its complete repeats, sorted."""

    any_decoder: list[int]  # repeats of which some decoder has every fold
    shared: list[int]  # the repeats of the table: each of its decoders has every fold


def _complete_repeats(decoders: Iterable[FoldRuns], num_folds: int) -> _CompleteRepeats:
    """All complete repeats of a cross-validation, and those that its table has.

    A split seed divides the rows into folds: one seed is one repeat. The table has the
    repeat that most decoders have, these decoders, and all repeats that they share.
    Where all decoders have a repeat, a further one of some takes none out of the table.

    Args:
        decoders: for each decoder, its runs by split seed and fold.
        num_folds: of the cross-validation.
    """
    complete_seeds_of_decoders: list[set[int]] = []
    for runs_by_fold in decoders:
        complete_seeds: set[int] = set()
        for split_seed in {seed_fold.split_seed for seed_fold in runs_by_fold}:
            folds = _folds_of([split_seed], num_folds)
            if all(seed_fold in runs_by_fold for seed_fold in folds):
                complete_seeds.add(split_seed)
        if complete_seeds:
            complete_seeds_of_decoders.append(complete_seeds)
    if not complete_seeds_of_decoders:
        return _CompleteRepeats([], [])

    any_decoder = sorted(set.union(*complete_seeds_of_decoders))
    # of split seeds that equally many decoders have, the lowest counts
    most_common_seed = max(
        any_decoder,
        key=lambda seed: sum(seed in seeds for seeds in complete_seeds_of_decoders),
    )
    seeds_of_table = [
        seeds for seeds in complete_seeds_of_decoders if most_common_seed in seeds
    ]
    return _CompleteRepeats(any_decoder, sorted(set.intersection(*seeds_of_table)))


def _folds_of(split_seeds: Iterable[int], num_folds: int) -> list[SeedFold]:
    """All folds of a cross-validation with these split seeds, in their order."""
    return [
        SeedFold(split_seed, number)
        for split_seed in split_seeds
        for number in range(1, num_folds + 1)
    ]


def _runs_by_single_test(
    runs: Sequence[RunResult], complete_repeats: set[Repeat]
) -> dict[tuple[object, ...], dict[str, list[RunResult]]]:
    """Runs by the rows that test them, and then by the key of their recipe.

    The key of the test rows begins with the test split and the fold, which is None for
    a run without folds.

    Args:
        runs: the runs to report.
        complete_repeats: repeats of which a decoder has every fold. Runs of their folds
            are left out: one table has all their test rows.
    """
    by_test: dict[tuple[object, ...], dict[str, list[RunResult]]] = {}
    for run in runs:
        cross_validation = _cross_validation_of(run)
        # without folds, the split seed does not change the test rows
        split_seed = 0
        if cross_validation is not None:
            split_seed = split_seed_of(run)
            if Repeat(cross_validation, split_seed) in complete_repeats:
                continue

        key = (
            run.recipe.test_split,
            run.recipe.fold,
            run.states,
            cross_validation,
            split_seed,
            # a table has one trivial score, which the training rows decide
            run.majority_accuracy,
            digest_of(run.labels.tobytes()),
        )
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
        cross_validation: CrossValidation,
        decoders: Sequence[FoldRuns],
        repeats: _CompleteRepeats,
    ) -> TestedEntries:
        """The table of all decoders that have every fold of the shared repeats.

        Args:
            cross_validation: the cross-validation, without its split seeds.
            decoders: for each decoder, its runs by split seed and fold; one of them at
                least has every fold.
            repeats: of the cross-validation.
        """
        split_seeds = repeats.shared
        num_folds = cross_validation.num_folds
        required_folds = _folds_of(split_seeds, num_folds)
        complete_decoders: list[RunsByPart] = []
        names_of_incomplete: set[str] = set()
        for runs_by_fold in decoders:
            if all(fold in runs_by_fold for fold in required_folds):
                runs_by_part = [runs_by_fold[fold] for fold in required_folds]
                complete_decoders.append(runs_by_part)
            else:
                names_of_incomplete |= _decoder_names(runs_by_fold)

        times = f"{len(split_seeds)} times" if len(split_seeds) > 1 else "all"
        # every run says the same of the split and its groups
        any_run = complete_decoders[0][0][0]
        split = _split_in_words(any_run, split_seeds)
        return self._tested(
            tested_on=f"{times} {num_folds} folds{split}",
            key=("folds", *cross_validation),
            decoders=complete_decoders,
            incomplete=sorted(names_of_incomplete),
            left_out_repeats=sorted(set(repeats.any_decoder) - set(split_seeds)),
        )

    def single_test(
        self, key: tuple[Any, ...], runs_of_entries: Sequence[PartRuns]
    ) -> TestedEntries:
        """The table of all entries on one test split, or on one fold.

        Args:
            key: of the test rows; it begins with the test split and the fold.
            runs_of_entries: the runs of each entry.
        """
        test_split, fold, *_ = key
        tested_on = f"test split '{test_split}'"
        if fold is not None:
            any_run = runs_of_entries[0][0]
            split = _split_in_words(any_run, [split_seed_of(any_run)])
            tested_on = f"fold {fold.number} of {fold.total}{split}"
        # one test is a single part of test rows
        decoders = [[runs] for runs in runs_of_entries]
        return self._tested(
            tested_on=tested_on,
            key=key,
            decoders=decoders,
            incomplete=[],
            left_out_repeats=[],
        )

    def _tested(
        self,
        *,
        tested_on: str,
        key: tuple[object, ...],
        decoders: Sequence[RunsByPart],
        incomplete: list[str],
        left_out_repeats: list[int],
    ) -> TestedEntries:
        """The sorted entries on one set of test rows, with the groups of these rows.

        Args:
            tested_on: the test rows in words.
            key: identity of the test rows.
            decoders: for each entry, its runs on every part of the test rows.
            incomplete: names of decoders that lack folds.
            left_out_repeats: split seeds of which another decoder lacks folds.
        """
        first_decoder = decoders[0]
        repeats = len({split_seed_of(runs[0]) for runs in first_decoder})
        groups = self._groups_of_test_rows(decoders, repeats)
        entries = [
            _make_entry(
                runs_by_part,
                self.tunings,
                self._score_for(runs_by_part),
                self.temperature,
                groups,
            )
            for runs_by_part in decoders
        ]
        entries.sort(key=rank)
        return TestedEntries(
            tested_on=tested_on,
            key=key,
            entries=entries,
            incomplete=incomplete,
            left_out_repeats=left_out_repeats,
            groups=groups,
            labels=_labels_without_repeats(first_decoder, repeats),
        )

    def _groups_of_test_rows(
        self, decoders: Sequence[RunsByPart], repeats: int
    ) -> TableGroups:
        """The groups of the test rows, by what all runs on their cache recorded.

        Args:
            decoders: for each entry, its runs on every part of the test rows.
            repeats: how often every row is among the test rows.
        """
        # for each part of the test rows, the runs of all decoders on it
        tests = [
            [run for runs in runs_on_part for run in runs]
            for runs_on_part in zip(*decoders, strict=True)
        ]
        fingerprint = tests[0][0].cache.fingerprint
        runs_of_cache = [
            run
            for run in (*self.runs, *self.left_out_runs)
            if run.cache.fingerprint == fingerprint
        ]
        return table_groups(tests, runs_of_cache, repeats, self.grouped_by)

    def _score_for(self, runs_by_part: RunsByPart) -> Score:
        """The compared score, with the order of an entry's classes if it needs one."""
        score = score_of(self.score_name)
        if score.needs_class_order:
            class_names = runs_by_part[0][0].cache.names
            score.class_places = class_places(class_names, self.class_order)
        return score


def _labels_without_repeats(runs_by_part: RunsByPart, repeats: int) -> NDArray[Any]:
    """The label of every test row, each row once, as ``RunResult.targets``.

    Args:
        runs_by_part: the runs of a decoder on every part of the test rows.
        repeats: how often every row is among the test rows.
    """
    label_N = np.concatenate([runs[0].targets for runs in runs_by_part])
    if repeats == 1:
        return label_N
    # sorted by row number, the repeats of a row stand side by side: take the first
    row_N = np.concatenate([runs[0].test_rows for runs in runs_by_part])
    return label_N[np.argsort(row_N, kind="stable")[::repeats]]


def rank(entry: Entry) -> tuple[object, ...]:
    """Sort key of an entry in its table: the best mean first, then by name.

    Entries without a mean stand last.
    """
    mean = math.inf if entry.compared_score.mean is None else entry.compared_score.mean
    if math.isfinite(mean) and entry.compared_score.score.larger_is_better:
        mean = -mean
    reads_some_layers = entry.recipe.get("layers") is not None
    num_rows = entry.num_drawn_rows or math.inf
    return (
        mean,
        reads_some_layers,
        entry.attention,
        entry.head,
        entry.select,
        num_rows,
        str(entry.recipe),
    )


def _decoder_names(runs_by_fold: FoldRuns) -> set[str]:
    """Mechanism and head of the runs of each fold, such as ``gaam + linear``."""
    first_runs_of_folds = [runs[0] for runs in runs_by_fold.values()]
    return {
        f"{brief(run.attention)} + {brief(run.head)}" for run in first_runs_of_folds
    }


def _cross_validation_of(run: RunResult) -> CrossValidation | None:
    """The cross-validation that a run is a fold of; None for a run without folds."""
    fold = run.recipe.fold
    if fold is None:
        return None
    groups = run.recipe.groups
    return CrossValidation(
        states=run.states,
        num_folds=fold.total,
        train_split=run.recipe.train_split,
        groups_digest=groups.digest if groups else None,
    )


def _split_in_words(run: RunResult, split_seeds: list[int]) -> str:
    """The words of a title on the folds of a run, to stand behind their number.

    Such as `` of the 'train' split, split seed 1-2``: the split that folds divide, the
    split seeds unless they are the usual one, and the groups, if any.
    """
    text = f" of the '{run.recipe.train_split}' split"
    if split_seeds != [USUAL_SPLIT_SEED]:
        text += f", split seed {spell_numbers(split_seeds)}"
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
    runs_by_part: RunsByPart,
    tunings: Mapping[str, Tuning],
    score: Score,
    temperature: bool,
    groups: TableGroups,
) -> Entry:
    """Make one entry from its runs on each part of the test rows (1, or the folds).

    Args:
        runs_by_part: the runs of the entry.
        tunings: key of a run -> the tuning that chose its settings.
        score: the score that the table compares.
        temperature: whether to fit temperatures to the probabilities.
        groups: the groups of the test rows.
    """
    first_run = runs_by_part[0][0]
    run_by_seed_of_parts = [_reported_runs(runs, tunings) for runs in runs_by_part]
    seeds = set.intersection(*map(set, run_by_seed_of_parts))
    counted_runs = _counted_runs(runs_by_part, seeds)
    recipe, plugin_code = _shared_recipe(runs_by_part)
    num_repeats = len({split_seed_of(runs[0]) for runs in runs_by_part})

    tuned_parts = [runs for runs in runs_by_part if runs[0].key in tunings]
    tuning_of_parts = tuple(tunings[runs[0].key] for runs in tuned_parts)
    scores = score_entry(
        runs_by_part, sorted(seeds), num_repeats, score, temperature, groups
    )
    simulate = partial(
        _simulate_tunings,
        tuned_parts,
        tuning_of_parts,
        grouped_by=groups.relations,
        fit_temperature=scores.temperatures is not None,
    )
    simulated_choices = simulate(score)
    scores = _with_training_variance(
        scores, simulated_choices, simulate, _train_rows(counted_runs, groups)
    )
    late_seeds = _late_seeds(counted_runs, scores.finished)
    return Entry(
        attention=first_run.attention,
        head=first_run.head,
        select=first_run.select,
        parameters=first_run.parameters,
        labels_shuffled=first_run.shuffled,
        recipe=recipe,
        code=plugin_code,
        tunings=tuning_of_parts,
        simulated_choices=simulated_choices,
        folds=len(runs_by_part) // num_repeats,
        repeats=num_repeats,
        seeds=tuple(sorted(seeds)),
        seconds=_seconds(run_by_seed_of_parts, seeds),
        failed=_failed_seeds(run_by_seed_of_parts, seeds),
        fitted_at_once=bool(first_run.fit),
        on_training_rows=first_run.recipe.on_training_rows,
        num_drawn_rows=_fewest_drawn(counted_runs),
        seeds_still_learning=late_seeds,
        training_too_short=_is_too_short(
            late_seeds, scores.finished, recipe, len(runs_by_part)
        ),
        settings_at_edge=_settings_at_edge(tuning_of_parts, simulated_choices),
        runs=counted_runs,
        grouped_by=groups.relations,
        # an entry has every field of its scores
        **vars(scores),
    )


def _with_training_variance(
    scores: EntryScores,
    choices_by_compared: Sequence[SimulatedChoices],
    simulate: Callable[[Score], Sequence[SimulatedChoices]],
    train_rows: float,
) -> EntryScores:
    """The scores, with intervals that include the variance from tuning and training.

    Args:
        scores: of the entry.
        choices_by_compared: what each tuning would choose on other validation rows,
            with its compared scores.
        simulate: gives them with another score.
        train_rows: number of training rows, see ``Scored``.
    """
    compared = scores.compared_score
    default = scores.default_score
    choices_by_default = choices_by_compared
    if type(default.score) is not type(compared.score):
        choices_by_default = simulate(default.score)
    # a score is a mean over P parts, and in each part validation chose the settings
    num_parts = scores.score_SP.shape[1]

    def with_variance(
        measured: MeasuredScore, choices: Sequence[SimulatedChoices]
    ) -> MeasuredScore:
        scored = replace(
            measured.scored,
            tuning_variance=sum(part.variance for part in choices) / num_parts**2,
            train_rows=train_rows,
        )
        return replace(measured, scored=scored)

    return replace(
        scores,
        default_score=with_variance(default, choices_by_default),
        compared_score=with_variance(compared, choices_by_compared),
    )


def _train_rows(runs: Sequence[RunResult], groups: TableGroups) -> float:
    """Number of training and validation rows, as a claim or an interval counts them.

    Neither is more precise than with as many test rows as training rows. There is no
    such limit for a cross-validation, whose rows are all learned from in turn: it is
    infinite.
    """
    if runs[0].recipe.fold:
        return math.inf
    return count_train_rows(runs, groups.row_groups, groups.relations)


def _late_seeds(runs: Sequence[RunResult], finished: Sequence[int]) -> tuple[int, ...]:
    """Finished seeds whose best epoch is the last one, in any fold."""
    late = {seed for run in runs for seed in run.still_learning}
    return tuple(sorted(late & set(finished)))


def _is_too_short(
    late_seeds: Sequence[int],
    finished: Sequence[int],
    recipe: Settings,
    num_folds: int,
) -> bool:
    """Whether so many seeds had their best epoch last that more epochs may be better.

    If the accuracy no longer changes, every epoch is the best by the same chance. A
    training is too short if more seeds were late than this chance explains.

    Args:
        late_seeds: finished seeds whose best epoch is the last one, in any fold.
        finished: the finished seeds.
        recipe: has the number of epochs, unless the head is fitted at once.
        num_folds: how often each seed was trained; each time it may be late by chance.
    """
    if not late_seeds:
        return False
    return stats.later_than_chance(
        len(late_seeds), len(finished), recipe["epochs"], num_folds
    )


def _seconds(
    run_by_seed_of_parts: Sequence[Mapping[int, RunResult]], seeds: set[int]
) -> dict[int, float]:
    """Seconds of training of each seed, in all folds together.

    ``run_by_seed_of_parts`` has, for each fold, the run that counts for a seed.
    """
    return {
        seed: sum(
            run_by_seed[seed].seconds[seed] for run_by_seed in run_by_seed_of_parts
        )
        for seed in seeds
    }


def _fewest_drawn(runs: Sequence[RunResult]) -> int | None:
    """The fewest training rows that were drawn; None where all were used."""
    drawn = [run.drawn.total for run in runs if run.drawn]
    return min(drawn, default=None)


def _reported_runs(
    runs: PartRuns, tunings: Mapping[str, Tuning]
) -> dict[int, RunResult]:
    """Seed -> the run that counts for it, without seeds that only tune settings.

    Args:
        runs: the runs of an entry on one part of the test rows.
        tunings: key of a run -> the tuning that chose its settings.
    """
    run_by_seed = first_run_by_seed(runs)
    seeds = reporting_seeds_of(tuple(run_by_seed), tunings.get(runs[0].key))
    return {seed: run_by_seed[seed] for seed in seeds}


def _failed_seeds(
    run_by_seed_of_parts: Sequence[Mapping[int, RunResult]], seeds: set[int]
) -> dict[int, str]:
    """Failed seed -> the reason, in its first fold that failed.

    Args:
        run_by_seed_of_parts: for each fold, seed -> the run that counts.
        seeds: the seeds that every fold has.
    """
    reasons: dict[int, str] = {}
    split_seeds = {
        split_seed_of(run)
        for run_by_seed in run_by_seed_of_parts
        for run in run_by_seed.values()
    }
    for seed in seeds:
        for run_by_seed in run_by_seed_of_parts:
            run = run_by_seed[seed]
            if seed in run.failed:
                reason = run.failed[seed]
                if len(run_by_seed_of_parts) > 1:
                    reason = f"fold {run.recipe.fold}: {reason}"
                if len(split_seeds) > 1:
                    reason = f"split seed {split_seed_of(run)}, {reason}"
                reasons[seed] = reason
                break
    return reasons


def _shared_recipe(runs_by_part: RunsByPart) -> tuple[Settings, str]:
    """The settings of an entry, and the code of its mechanism if a plugin has it.

    A tuned setting in which the folds differ has the value ``BY_FOLD``.
    """
    settings_of_parts = [dict(runs[0].settings) for runs in runs_by_part]
    recipe = settings_of_parts[0]

    # The code of a mechanism is no setting: two mechanisms always differ in it, and
    # would never be compared as decoders of the same recipe.
    mechanism_code = ""
    other_plugins = {}
    for name, plugin_code in recipe.pop("plugins", {}).items():
        if name.startswith("mechanism "):
            mechanism_code += plugin_code
        else:
            other_plugins[name] = plugin_code
    if other_plugins:
        recipe["plugins"] = other_plugins

    if len(runs_by_part) > 1:
        for name in TUNED_SETTINGS:
            if len({settings.get(name) for settings in settings_of_parts}) > 1:
                recipe[name] = BY_FOLD
        # the entry has every fold
        recipe["fold"] = None
    split_seeds = sorted({split_seed_of(runs[0]) for runs in runs_by_part})
    if len(split_seeds) > 1:
        recipe["split_seed"] = ", ".join(map(str, split_seeds))
    return recipe, mechanism_code


def _counted_runs(runs_by_part: RunsByPart, seeds: set[int]) -> tuple[RunResult, ...]:
    """The runs with a seed of the entry; where a part has none, all its runs."""
    counted: list[RunResult] = []
    for runs in runs_by_part:
        counted += [run for run in runs if set(run.seeds) & seeds] or runs
    return tuple(counted)


def _simulate_tunings(
    tuned_parts: RunsByPart,
    tuning_of_parts: Sequence[Tuning],
    score: Score,
    grouped_by: Sequence[str],
    fit_temperature: bool,
) -> tuple[SimulatedChoices, ...]:
    """Simulate, for each tuned part, what other validation rows would choose.

    Left out are tunings with fewer than two candidates, and those of which a candidate
    lacks validation logits, test rows or a test score.

    Args:
        tuned_parts: the runs of each tuned part of the test rows.
        tuning_of_parts: the tuning of each of these parts.
        score: the score that the table compares.
        grouped_by: relations that put validation rows together.
        fit_temperature: whether the table's scores of probabilities divide the logits
            by fitted temperatures.
    """
    fit_temperature = fit_temperature and score.uses_temperature
    simulated_choices = []
    for runs, tuning in zip(tuned_parts, tuning_of_parts, strict=True):
        choices = _simulate_tuning(
            tuning, runs[0].targets, score, grouped_by, fit_temperature
        )
        if choices is not None:
            simulated_choices.append(choices)
    return tuple(simulated_choices)


def _simulate_tuning(
    tuning: Tuning,
    test_labels: NDArray[Any],
    score: Score,
    grouped_by: Sequence[str],
    fit_temperature: bool,
) -> SimulatedChoices | None:
    """Simulate which candidates of a tuning other validation rows would choose.

    None with fewer than two candidates, or if one lacks validation logits, test rows or
    a test score.

    Args:
        tuning: its candidates have answers to validation rows and test logits.
        test_labels: of the test rows.
        score: of the test logits.
        grouped_by: relations that put validation rows together.
        fit_temperature: whether to divide the test logits by fitted temperatures.
    """
    # of each candidate: contributions of its R validation rows, test scores of seeds
    contribution_R_of_candidates: list[NDArray[Any]] = []
    test_scores_of_candidates: list[list[float | None]] = []
    validation_groups = None
    for candidate in tuning.answers_of_candidates(grouped_by, fit_temperature):
        contribution_R_of_candidates.append(candidate.contribution_R)
        # all candidates share the validation rows, and so their groups
        if candidate.numbers_of_relations and validation_groups is None:
            validation_groups = row_groups(
                join_relations(candidate.numbers_of_relations)
            )
        test_scores = [
            score.value(Answers(logits_NC, test_labels))
            for logits_NC in candidate.test_logits_of_seeds
        ]
        test_scores_of_candidates.append(test_scores)

    num_candidates = len(tuning.candidate_runs)
    if num_candidates < 2 or len(test_scores_of_candidates) < num_candidates:
        return None
    if any(None in test_scores for test_scores in test_scores_of_candidates):
        return None
    return simulate_choices(
        np.stack(contribution_R_of_candidates),
        np.array(test_scores_of_candidates, np.float64),
        tuning.chosen_index,
        validation_groups,
    )


def _settings_at_edge(
    tunings: Sequence[Tuning], simulated_choices: Sequence[SimulatedChoices]
) -> frozenset[str]:
    """Tuned settings whose smallest or largest value won.

    Empty if other validation rows might well have chosen another value.
    """
    if any(is_unsure(choices) for choices in simulated_choices):
        return frozenset()
    return frozenset(name for tuning in tunings for name in tuning.at_edge)
