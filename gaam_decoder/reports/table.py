"""The tables of a report: entries of the same states and the same test rows, compared.

A ``Table`` holds what a report says; a ``Format`` decides how that looks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TextIO, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief, counted
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports import compare
from gaam_decoder.reports.class_order import OPTION, class_places, parse_order
from gaam_decoder.reports.compare import Pairs
from gaam_decoder.reports.entries import Comparison, Entry, EntryKey
from gaam_decoder.reports.gathering import TestedEntries, entries_by_test
from gaam_decoder.reports.groups import TableGroups, find_group_like_columns
from gaam_decoder.reports.names import name_entries
from gaam_decoder.reports.scoring import SCORES, score_of
from gaam_decoder.reports.titles import distinguishing_words
from gaam_decoder.runs.loading import Runs, Selection
from gaam_decoder.runs.records import CacheRecord
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    Choice,
    choose_candidates,
    reporting_seeds_of,
)
from gaam_decoder.stats.scores.base import Score
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of

SEPARATE = "do not compare decoders of different caches or test rows"
ON_TRAINING_ROWS = "tested on its own training rows"
CACHE_FIELDS = (
    "fingerprint",
    "states",
    "encoder",
    "dataset",
    "layers",
    "first_layer",
    "hidden_size",
    "rows",
)


@dataclass(frozen=True, kw_only=True)
class FinalModel:
    """A run that learned from all rows, so that none are left to test it."""

    run: RunResult
    seeds: tuple[int, ...]  # without those that only tuned its settings

    @property
    def failed(self) -> dict[int, str]:
        """Failed seed -> the reason."""
        return {
            seed: self.run.failed[seed]
            for seed in self.seeds
            if seed in self.run.failed
        }

    @property
    def folder(self) -> str:
        """The folder of the run, behind the folder around it."""
        # no more of the path: others see the report
        return "/".join(self.run.path.parts[-2:])

    def in_words(self) -> str:
        """Decoder, seeds and folder."""
        name = f"{brief(self.run.attention)} + {brief(self.run.head, 60)}"
        seeds = f"seeds {spell_numbers(self.seeds)}"
        if self.failed:
            seeds += f" ({len(self.failed)} failed)"
        folder = brief(self.folder, 200)
        return f"final model {name}, {seeds}: not evaluated; in {folder}"

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        return {
            "attention": self.run.attention,
            "head": self.run.head,
            "select": self.run.select,
            "parameters": self.run.parameters,
            "recipe": self.run.settings,
            "evaluated": False,
            "folder": self.folder,
            "seeds": list(self.seeds),
            "failed_seeds": [
                {"seed": seed, "reason": reason} for seed, reason in self.failed.items()
            ],
            "runs": [{"path": self.run.path.name, "key": self.run.key}],
        }


class ComparedEntry(NamedTuple):
    """An entry, and its comparison with the baseline."""

    entry: Entry
    comparison: Comparison


@dataclass(frozen=True, kw_only=True)
class Table:
    """All entries of one cache and one set of test rows.

    Entries of different tables are never compared. A table has no entries where a cache
    has final models alone, which are not tested.
    """

    cache: CacheRecord
    # how the cache differs from others of the report with the same title
    cache_difference: str = ""
    # the test rows, in words
    tested_on: str
    num_test_rows: int = 0
    entries: tuple[Entry, ...] = ()
    # the mechanism that the others are compared with
    baseline: str | None = None
    # decoders that are no entries, because some of their folds are missing
    incomplete: Sequence[str] = ()
    # split seeds of complete cross-validations that not all decoders have
    left_out_repeats: Sequence[int] = ()
    # comparisons that Holm corrects for, by head; those that filters left out count
    num_tests: Mapping[str, int] = field(default_factory=dict)
    # pairs of entries that differ in one setting alone
    pairs: Pairs | None = None
    # largest difference that does not matter, a fraction or in the score's unit
    margin: float
    # name of the score that is compared
    score_name: str
    temperature: bool
    # all classes, the lowest first, if a person gave their order
    class_order: tuple[str, ...] = ()
    # what filters left out of the whole report
    selection: Selection | None
    # runs that filters left out unread, so that Holm does not correct for them
    num_unread_runs: int = 0
    # models of this cache that are not tested
    final_models: tuple[FinalModel, ...] = ()
    # groups of the test rows; None where nothing is tested
    groups: TableGroups | None = None
    # kept columns that look like groups but are not used as such: their value counts
    group_like_columns: Mapping[str, int] = field(default_factory=dict)
    # runs of the entries and of the final models
    runs: tuple[RunResult, ...]

    @property
    def shown_entries(self) -> list[Entry]:
        """The entries that are shown."""
        return [entry for entry in self.entries if entry.is_shown]

    @property
    def compared_entries(self) -> list[ComparedEntry]:
        """The entries that are compared with the baseline."""
        return [
            ComparedEntry(entry, entry.comparison)
            for entry in self.entries
            if entry.comparison
        ]

    @property
    def task(self) -> Task:
        """The task of its runs."""
        return self.runs[0].task_definition if self.runs else CLASSIFICATION

    @property
    def score(self) -> Score:
        """The score that is compared, which says how its values are written."""
        return score_of(self.score_name)

    def title(self) -> str:
        """One line that names the data set, the encoder and the test rows."""
        parts = [self.cache_title]
        # how the cache differs from another one with the same title
        if self.cache_difference:
            parts.append(self.cache_difference)

        # The groups follow with their number: the words on folds need not name them.
        tested_on = self.tested_on
        if self.num_groups:
            tested_on = tested_on.partition(", groups ")[0]
        # the usual test rows need no words
        if tested_on != "test split 'test'":
            parts.append(brief(tested_on))

        if self.groups and self.num_groups:
            parts.append(self.groups.in_words())
        parts += self._shared_restrictions()
        return ", ".join(parts)

    def _shared_restrictions(self) -> Iterator[str]:
        """The layers and the budget of rows of all decoders, where they are not all.

        Where decoders differ in them, their names say it.
        """
        shared: dict[str, Any] = {}
        for name in ("layers", "train_rows", "shots"):
            values = {entry.recipe.get(name) for entry in self.entries}
            if len(values) == 1:
                shared[name] = values.pop()

        if shared.get("layers"):
            noun = "layer" if str(shared["layers"]).isdecimal() else "layers"
            yield f"decoders read {noun} {shared['layers']}"
        if shared.get("train_rows"):
            yield _labelled_rows(shared["train_rows"])
        if shared.get("shots"):
            noun = "class" if self.task.has_classes else "label"
            yield f"{_labelled_rows(shared['shots'])} of each {noun}"

    @property
    def cache_title(self) -> str:
        """The part of the title that names the cache."""
        rows = " + ".join(
            f"{count:,} {brief(split, 40)}" for split, count in self.cache.rows.items()
        )
        first_layer = self.cache.first_layer
        num_layers = self.cache.layers
        layers = counted(num_layers, "layer")
        if first_layer != 1:
            layers += f" ({first_layer} to {first_layer + num_layers - 1})"
        return (
            f"{brief(self.cache.dataset)} ({rows} rows) "
            f"through {brief(self.cache.encoder)}, "
            f"{layers} x {self.cache.hidden_size}"
        )

    @property
    def num_groups(self) -> int | None:
        """How many groups the test rows form; None where rows are the unit."""
        if self.groups is None or self.groups.row_groups is None:
            return None
        return len(self.groups.row_groups)

    @property
    def covered(self) -> str:
        """What the intervals of differences cover, such as ``seeds and rows``."""
        compared = [compared.entry for compared in self.compared_entries]
        if compared and not compare.trained_in_steps(compared):
            return self.unit_noun
        return f"seeds and {self.unit_noun}"

    @property
    def unit_noun(self) -> str:
        """``groups`` or ``rows``: of what another test set would have others."""
        return "rows" if self.num_groups is None else "groups"

    def further_lines(self) -> list[str]:
        """Lines on entries that are not shown, and on models that are not tested."""
        lines = []
        num_hidden = len(self.entries) - len(self.shown_entries)
        if num_hidden:
            lines.append(
                f"{num_hidden} of {len(self.entries)} decoders are not shown, but "
                "every verdict and note counts them; decoders that are shown for their "
                "test score owe a part of it to luck"
            )
        lines += [model.in_words() for model in self.final_models]
        return lines

    def _groups_as_json(self) -> dict[str, object] | None:
        """Number and columns of the groups of test rows; None without groups."""
        if self.groups is None or self.num_groups is None:
            return None
        return {"number": self.num_groups, "columns": list(self.groups.relations)}

    def _task_values(self) -> dict[str, Any]:
        """The trivial prediction and the names of the outputs, as JSON values."""
        # all entries have the same test rows, and so the same trivial score
        trivial_score = self.entries[0].trivial_score if self.entries else None
        names = list(self.cache.names)
        if self.task.has_classes:
            return {"majority_accuracy": trivial_score, "class_names": names}
        return {
            "task": self.task.name,
            "baseline_score": trivial_score,
            "target_names": names,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        cache_values = self.cache.to_dict()
        return {
            "title": self.title(),
            "cache": {
                name: cache_values[name]
                for name in CACHE_FIELDS
                if name in cache_values
            },
            "cache_differs_by": self.cache_difference or None,
            "entries": [entry.to_dict() for entry in self.shown_entries],
            **self._task_values(),
            "tested_on": self.tested_on,
            "test_rows": self.num_test_rows,
            "groups": self._groups_as_json(),
            "baseline": self.baseline,
            "comparisons_corrected_for": dict(self.num_tests),
            "margin": self.margin,
            "score": self.score_name,
            "temperature": self.temperature,
            **({"class_order": list(self.class_order)} if self.class_order else {}),
            "unchosen_entries": [
                i for i, entry in enumerate(self.shown_entries) if entry.tuning_failed
            ],
            "final_models": [model.to_dict() for model in self.final_models],
            "entries_not_shown": len(self.entries) - len(self.shown_entries),
            "selection": self.selection.to_dict() if self.selection else None,
        }


def _labelled_rows(count: int) -> str:
    return counted(count, "labelled row")


class Format(ABC):
    """One way to show tables."""

    # whether a person may choose the columns of the table
    has_columns: ClassVar[bool] = True
    # the section to show alone, without the table of accuracies
    section: str | None = None
    # columns of the table, as ``choose_columns`` returns them; (): the usual ones
    columns: Sequence[Any] = ()
    # sections over the data sets of all tables, as ``across_sections`` returns them
    sections_over_sets: Sequence[Any] = ()

    @property
    def shows_sections(self) -> bool:
        """Whether the sections of tables are written: not beside chosen columns."""
        return not self.columns

    @abstractmethod
    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write all tables to ``stream``."""


class TableOptions(TypedDict, total=False):
    """How to make tables; each option has a default."""

    baseline: str | None
    """Mechanism that the others are compared with; default: ``none`` if a run has
    it."""
    margin: float | None
    """Largest difference that does not matter, in points of the score, or in its unit;
    default: 0.5 points, for log loss 0.01, for the Brier score 0.005."""
    score: str | None
    """The score to compare: a name, or ``FILE.py:CLASS``; default: accuracy, of numbers
    R2, of label sets micro-F1."""
    class_order: str | Sequence[str] | None
    """All classes, the lowest first, for ``quadratic-kappa`` and ``ordinal-mae``;
    default: classes that are numbers are ordered by them."""
    temperature: bool
    """Fit a temperature for every seed and fold by the log loss of its validation rows.
    Log loss, Brier score and ECE divide the logits by it."""
    every_candidate: bool
    """Show every learning rate and weight decay; default: only what validation
    chose."""
    top: int | None
    """How many entries of each table are shown, the best, with their baselines; the
    others still count."""
    pairs: str | None
    """Setting in which the entries of every pair differ, such as layers, or encoder;
    the report then begins with the best value. Default: attn, in a section."""
    groups: str | None
    """Kept column whose value says which rows belong together, such as the speaker.
    Groups are then the unit of intervals and verdicts. The groups of the training,
    pieces of one sound and copies are so without this option."""
    across: str | None
    """Factors of the answer over the tables of several data sets: ``dataset`` gives an
    answer for each encoder, ``dataset,encoder`` one answer, whose unit is a data set
    with all its encoders. Default: the latter, where several data sets are compared
    with the baseline."""


def check_options(options: TableOptions) -> None:
    """Refuse unknown options, and a number of entries to show below 1.

    Raises:
        ConfigError: an option is unknown or out of range.
    """
    plugins.check_names("option", options, TableOptions.__annotations__)
    top = options.get("top")
    # a number that is not comparable, such as NaN, is refused too
    if top is not None and not top >= 1:
        raise ConfigError(
            "--top is out of range", expected="a number from 1 on", found=str(top)
        )


def compares_encoders(axis: str | None) -> bool:
    """Whether the option ``pairs`` asks for pairs of encoders."""
    return axis is not None and compare.normalised_axis(axis) == compare.ENCODER


def build_tables(
    runs: Sequence[RunResult], **options: Unpack[TableOptions]
) -> list[Table]:
    """Make a table for each cache and set of test rows.

    Runs that differ in their seeds alone are one entry. Runs that filters left out
    still count in the number of comparisons that Holm corrects for: a person who
    filters after a look at the results gets no smaller p.

    Raises:
        ConfigError: as for ``report``.
    """
    return _TableBuilder(runs, options).tables()


def build_all_tables(
    runs: Sequence[RunResult], **options: Unpack[TableOptions]
) -> list[Table]:
    """Make the tables as if no filter had left out a run; none if none did.

    Raises:
        ConfigError: as for ``report``.
    """
    left_out_runs = _left_out_runs(runs, _score_for_runs(runs, options))
    if not left_out_runs:
        return []
    return build_tables([*runs, *left_out_runs], **options)


class _TableBuilder:
    """Makes the tables of a report, stage by stage: each stage reads those before it.

    A margin is the largest difference that does not matter.
    """

    def __init__(self, runs: Sequence[RunResult], options: TableOptions) -> None:
        self.options = options
        self.shows_every_candidate = options.get("every_candidate", False)
        self.score_name = _score_for_runs(runs, options)
        # the classes from the lowest to the highest, for a score of ordered classes
        self.class_order = _class_order_for_score(runs, self.score_name, options)
        self.margin = _margin_of_score(score_of(self.score_name), options.get("margin"))
        # runs that ``load_runs`` returned know what its filters left out
        self.selection = runs.selection if isinstance(runs, Runs) else None
        self.left_out_runs = _left_out_runs(runs, self.score_name)

        # the runs that tuning chose; for each set of test rows, their entries
        self.choice, self.tests = self._choose_and_group(runs)
        # for each set of test rows, the entries with those that filters left out, which
        # Holm's correction counts
        self.all_entries = self._entries_with_left_out(runs)
        self.baseline = compare.choose_baseline(
            [entry for test in self.tests for entry in test.entries],
            options.get("baseline"),
        )

    def tables(self) -> list[Table]:
        """Make the tables, and add the final models, which are not tested, to them."""
        entries_of_tables = [
            compare.TableEntries(test.entries, all_entries)
            for test, all_entries in zip(self.tests, self.all_entries, strict=True)
        ]
        # encoders are compared once there are tables: see ``reports.encoders``
        axis = self.options.get("pairs")
        if compares_encoders(axis):
            axis = None
        pairs_of_tables = compare.compare_pairs(entries_of_tables, axis, self.margin)
        tables = [
            self._table(test, all_entries, pairs)
            for test, all_entries, pairs in zip(
                self.tests, self.all_entries, pairs_of_tables, strict=True
            )
        ]
        tables = self._add_final_models(tables)
        # runs are read in the order of their folders, which says nothing of data sets
        tables.sort(key=lambda table: (table.cache.dataset, table.cache.encoder))
        return _tell_caches_apart(tables)

    def _choose_and_group(
        self, runs: Sequence[RunResult]
    ) -> tuple[Choice, list[TestedEntries]]:
        """Choose the settings of every entry, and group entries by their test rows.

        Runs that differ in learning rate or weight decay alone are candidates; their
        validation score chooses one, unless a person wants to see every candidate.
        """
        if self.shows_every_candidate:
            choice = Choice(runs=list(runs), tunings={}, undecided_keys=())
        else:
            choice = choose_candidates(runs)
        tests = entries_by_test(
            [run for run in choice.runs if run.evaluated],
            choice.tunings,
            score_name=self.score_name,
            temperature=self.options.get("temperature", False),
            grouped_by=self.options.get("groups"),
            left_out_runs=self.left_out_runs,
            class_order=self.class_order,
        )
        return choice, list(tests)

    def _entries_with_left_out(
        self, runs: Sequence[RunResult]
    ) -> list[Sequence[Entry]]:
        """For each table: its entries, and those that filters left out.

        The latter count in the correction of Holm. All lists are empty if filters left
        out no run of the report.
        """
        entries_by_key: dict[tuple[object, ...], list[Entry]] = {}
        if self.left_out_runs:
            all_runs = [*runs, *self.left_out_runs]
            _choice_of_all, tests_of_all = self._choose_and_group(all_runs)
            entries_by_key = {test.key: test.entries for test in tests_of_all}
        return [entries_by_key.get(test.key, []) for test in self.tests]

    def _empty_table(self, cache: CacheRecord, where: str) -> Table:
        """A table without entries, with the options that all tables of a report share.

        ``where`` says in words which rows are the test rows.
        """
        return Table(
            cache=cache,
            tested_on=where,
            margin=self.margin,
            score_name=self.score_name,
            class_order=self.class_order,
            temperature=self.options.get("temperature", False),
            selection=self.selection,
            runs=(),
        )

    def _table(
        self, test: TestedEntries, all_entries: Sequence[Entry], pairs: Pairs
    ) -> Table:
        """The table of one set of test rows.

        Args:
            test: the entries, with the labels and groups of their test rows.
            all_entries: the entries, and those that filters left out of the table.
            pairs: compared pairs of entries that differ in one setting.
        """
        entries = test.entries
        compared = compare.compare_with_counterparts(
            entries,
            all_entries,
            self.margin,
            partial(self._find_baseline, table_entries=entries),
        )
        # columns by which the share of right decoders varies may be groups
        share_right_N = _share_right(entries)
        stratum_N = entries[0].task.strata(test.labels)
        group_like_columns = find_group_like_columns(
            test.groups, share_right_N, stratum_N
        )
        has_baseline = any(
            compare.is_baseline(entry, self.baseline) for entry in entries
        )
        return replace(
            self._empty_table(entries[0].runs[0].cache, test.tested_on),
            num_test_rows=len(test.labels),
            entries=self._compared_entries(entries, all_entries, compared),
            baseline=self.baseline if has_baseline else None,
            incomplete=test.incomplete,
            left_out_repeats=test.left_out_repeats,
            num_tests=compare.num_tests_by_head(entries, compared),
            pairs=pairs,
            num_unread_runs=self._num_unread_runs(),
            groups=test.groups,
            group_like_columns=group_like_columns,
            runs=tuple(run for entry in entries for run in entry.runs),
        )

    def _find_baseline(
        self,
        entry: Entry,
        candidates: Sequence[Entry],
        table_entries: Sequence[Entry],
    ) -> Entry | None:
        """Find, among candidates, the baseline that is subtracted from an entry.

        A head that is fitted at once is compared in a table of such heads alone. In
        another one, ``table_entries``, the baseline is trained in steps.
        """
        if entry.fitted_at_once and compare.trained_in_steps(table_entries):
            return None
        return compare.find_baseline(entry, candidates, self.baseline)

    def _compared_entries(
        self,
        entries: Sequence[Entry],
        all_entries: Sequence[Entry],
        compared: Mapping[EntryKey, Comparison],
    ) -> tuple[Entry, ...]:
        """The entries with their comparisons and names, and how they were tuned.

        Each also says whether it is shown, whether its tuning failed, and whether it
        stands beside other candidates of its tuning.

        Args:
            entries: of the table, the best first.
            all_entries: these, and those that filters left out of the table.
            compared: key of an entry -> its comparison with the baseline.
        """
        # comparisons with the linear probe on the same states
        compared_with_probe = compare.compare_with_counterparts(
            entries, all_entries, self.margin, compare.find_probe
        )
        # the baseline of an entry that is shown stays beside it
        num_shown = self.options.get("top")  # None: all
        best_entries = entries[:num_shown]
        baselines = [
            self._find_baseline(entry, entries, table_entries=entries)
            for entry in best_entries
        ]
        shown = [*best_entries, *baselines]

        finished_entries = [
            replace(
                entry,
                comparison=compared.get(entry.key),
                probe_comparison=compared_with_probe.get(entry.key),
                tuning_failed=entry.runs[0].key in self.choice.undecided_keys,
                is_candidate=self.shows_every_candidate and len(entries) > 1,
                is_shown=any(entry is shown_entry for shown_entry in shown),
            )
            for entry in entries
        ]
        return name_entries(finished_entries)

    def _num_unread_runs(self) -> int:
        """Number of runs that filters left out without reading them."""
        if self.selection is None:
            return 0
        return sum(self.selection.left_out.values()) - len(self.left_out_runs)

    def _add_final_models(self, tables: Sequence[Table]) -> list[Table]:
        """Add final models to the first table of their states, or to a new one."""
        runs_by_states: dict[str, list[RunResult]] = {}
        for run in self.choice.runs:
            if not (run.evaluated or run.tuning_only):
                runs_by_states.setdefault(run.states, []).append(run)

        result = list(tables)
        for states, runs in runs_by_states.items():
            index = _index_of_states(result, states)
            if index is None:
                where = "final models, which are not evaluated"
                result.append(self._empty_table(runs[0].cache, where))
                index = len(result) - 1
            models = []
            for run in runs:
                tuning = self.choice.tunings.get(run.key)
                seeds = reporting_seeds_of(run.seeds, tuning)
                models.append(FinalModel(run=run, seeds=tuple(seeds)))
            result[index] = replace(
                result[index],
                final_models=tuple(models),
                runs=(*result[index].runs, *runs),
            )
        return result


def _left_out_runs(runs: Sequence[RunResult], score_name: str) -> list[RunResult]:
    """The runs that filters left out, as far as the compared score is for them.

    A score is for runs of the same task. One of ordered classes is for runs on the same
    classes alone: the order of their classes does not order other classes.
    """
    if not isinstance(runs, Runs) or not runs:
        return []
    left_out_runs = [run for run in runs.others if run.task == runs[0].task]
    if not score_of(score_name).needs_class_order:
        return left_out_runs
    class_names = {run.cache.names for run in runs}
    return [run for run in left_out_runs if run.cache.names in class_names]


def _score_for_runs(runs: Sequence[RunResult], options: TableOptions) -> str:
    """The name of the requested score, or of the default score of the runs' task.

    Raises:
        ConfigError: the runs have several tasks, or the score or a temperature is not
            for their task.
    """
    name = options.get("score")
    tasks = sorted({run.task for run in runs}) or [CLASSIFICATION.name]
    if len(tasks) > 1:
        raise ConfigError(
            "these runs have several tasks, and a report has one",
            expected="runs of one task",
            found=", ".join(tasks),
            hint="--where cache=CACHE keeps the runs of one cache",
        )
    task = task_of(tasks[0])
    if name is not None and task.name not in score_of(name).tasks:
        fitting = [
            other_name
            for other_name in plugins.names(SCORES)
            if task.name in score_of(other_name).tasks
        ]
        raise ConfigError(
            f"the score '{name}' is not for {task.name}",
            expected=f"one of: {', '.join(fitting)}",
            found=f"--score {name}, and runs whose task is {task.name}",
            hint=f"--score {task.default_score}, or no --score",
        )
    if options.get("temperature", False) and not task.has_probabilities:
        raise ConfigError(
            "a temperature is fitted to probabilities, and numbers have none",
            expected="runs of classification or multi-label",
            found=f"--temperature, and runs whose task is {task.name}",
            hint="leave --temperature out",
        )
    return name or task.default_score


def _class_order_for_score(
    runs: Sequence[RunResult], score_name: str, options: TableOptions
) -> tuple[str, ...]:
    """The order of the classes that a person gives; empty where there is none.

    Raises:
        ConfigError: the score needs an order that is missing or is not that of the
            classes, or it needs none.
    """
    order = parse_order(options.get("class_order") or ())
    if score_of(score_name).needs_class_order:
        for names in {run.cache.names for run in runs}:
            class_places(names, order)
    elif order:
        raise ConfigError(
            f"{OPTION} is for scores of ordered classes",
            expected="--score quadratic-kappa, or --score ordinal-mae",
            found=f"--score {score_name}",
        )
    return order


def _margin_of_score(score: Score, margin: float | None) -> float:
    """The largest difference that does not matter, a fraction or in the score's unit.

    Args:
        score: gives the default and the unit.
        margin: of a person, in points (percent) where the score is shown in percent;
            None: the default of the score.

    Raises:
        ConfigError: it is not between 0 and the largest possible difference.
    """
    fraction = score.margin if margin is None else margin / score.factor
    if not 0 < fraction < score.largest_difference:
        highest = score.factor * score.largest_difference
        raise ConfigError(
            "--margin is out of range",
            expected=f"{score.difference_unit} above 0 and below {highest:g}",
            found=f"{score.factor * fraction:g}",
        )
    return fraction


def _index_of_states(tables: Sequence[Table], states: str) -> int | None:
    """The index of the first table of the cache with these states; None: no table.

    ``states`` is the name of the states, as ``RunResult.states``.
    """
    for index, table in enumerate(tables):
        if table.runs and table.runs[0].states == states:
            return index
    return None


def _tell_caches_apart(tables: Sequence[Table]) -> list[Table]:
    """Where titles of tables would be the same, add how their caches differ."""
    # title without the test rows -> name of the states -> their cache
    caches_by_title: dict[str, dict[str, CacheRecord]] = {}
    for table in tables:
        caches = caches_by_title.setdefault(table.cache_title, {})
        caches[table.cache.name_of_states] = table.cache

    # name of the states -> what the title of their tables needs
    additions: dict[str, str] = {}
    for caches in caches_by_title.values():
        if len(caches) > 1:
            words = distinguishing_words(list(caches.values()))
            additions |= zip(caches, words, strict=True)
    return [
        replace(table, cache_difference=additions.get(table.cache.name_of_states, ""))
        for table in tables
    ]


def _share_right(entries: Sequence[Entry]) -> NDArray[np.float64]:
    """Share of decoders and seeds that are right on each test row, (N,).

    Of numbers and label sets, the mean contribution of the row to the score.
    """
    trained = [
        entry for entry in entries if entry.finished and not entry.labels_shuffled
    ]
    right_by_decoder = [
        np.asarray(entry.default_score.scored.by_row) for entry in trained or entries
    ]
    share_N: NDArray[np.float64] = np.mean(
        [right_SN.mean(0) for right_SN in right_by_decoder], axis=0
    )
    # an entry without a finished seed has a mean of nothing
    return np.nan_to_num(share_N)
