"""Tables with named columns; and how their records become rows: each is checked."""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.common.errors import ConfigError, DataError, GaamWarning
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.config import CLIP_OF, ExtractConfig
from gaam_cache.sources.base import FEWEST_ROWS, NO_LABEL, Record, Rows, Texts
from gaam_cache.sources.media.base import Files, file_in
from gaam_cache.sources.rows.cells import (
    NoLabelError,
    class_of,
    is_blank,
    kept_value,
    refuse_quantities,
    text_of,
)
from gaam_cache.sources.rows.holdout import held_out
from gaam_cache.sources.rows.limit import limited

SHOWN = 3  # rows that cannot be used and are named
FILE_COLUMNS = ("file", "audio", "image", "img")
"""What a column of sounds or pictures is called where nobody says so; the first that is there."""
LABEL_KINDS = {str: "text", int: "numbers", float: "numbers", bool: "truth values"}
"""What people call the values of a column of labels."""


class Columns(NamedTuple):
    """The columns of a table that are read, by what they are read for."""

    inputs: tuple[str, ...]  # those that make an input together
    label: str | None  # that of the class; None where nobody knows it
    kept: tuple[str, ...] = ()
    of_files: bool = (
        False  # the input is a sound or picture, of one column; else it is a text
    )

    @property
    def all(self) -> list[str]:
        label = () if self.label is None else (self.label,)
        return list(dict.fromkeys((*self.inputs, *label, *self.kept)))


class Table(NamedTuple):
    """What is known of a table before its rows are read."""

    names: list[str]  # of all columns
    records: Callable[
        [Columns], Iterator[Record]
    ]  # reads it from its start; at least those columns
    stored: tuple[str, ...] = ()  # columns that hold sounds or pictures themselves
    class_names: tuple[str, ...] | None = (
        None  # in order, if declared: whole numbers index them
    )


def choose_columns(
    table: Table, config: ExtractConfig, label: str | None, origin: str
) -> Columns:
    """The columns of a table that make rows; no ``label``: nobody asks for the classes."""
    file = config.file_column
    if file is None and not config.text_columns and "text" not in table.names:
        usual = [name for name in FILE_COLUMNS if name in (table.stored or table.names)]
        file = next(iter(usual or table.stored[:1]), None)
    inputs = (config.text_columns or ("text",)) if file is None else (file,)
    columns = Columns(inputs, label, config.keep_columns, file is not None)
    if label in inputs:
        what = f"'{label}' is label and input: every decoder would be right"
        raise ConfigError(
            what, expected="another --label-column or --text-column", where=origin
        )
    if missing := [column for column in columns.all if column not in table.names]:
        hint = "--text-column, --file-column (of sounds or pictures) and --label-column name "
        hint += "columns; --set unlabelled=SPLIT is for a split without labels"
        if len(table.names) == 1 and any(mark in table.names[0] for mark in ";\t| "):
            hint = "fields are not parted by commas: --set delimiter=semicolon (or tab, pipe)"
        plain = [name.isprintable() and name == name.strip() for name in table.names]
        shown = [
            one if ok else excerpt(one)
            for one, ok in zip(table.names, plain, strict=True)
        ]
        raise ConfigError(
            f"no column '{missing[0]}'",
            expected=f"one of: {', '.join(shown)}",
            where=origin,
            hint=hint,
        )
    return columns


def collect(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    *,
    split: str,
    origin: str,
    folder: Path = Path(),
    report: ReportProgress = no_progress,
) -> Rows:
    """Records become rows; paths of files are relative to ``folder``, labels as they stand.

    Of a table with labels a limit reads every label first, and then the rows that it takes alone.

    Args:
        table: what is read.
        columns: those of its columns that make rows.
        config: the extraction.
        split: what the rows are called in messages.
        origin: where they are from, in messages and provenance.
        folder: of the files that a table names.
        report: is told how many rows there are so far.

    Raises:
        DataError: rows cannot be used; says how many, and the first ones.
    """
    names = table.class_names
    if names is not None and config.strip_labels:
        names = tuple(name.strip() for name in names)
    problems = _Problems(split, origin, config)
    choice = _choose_rows(table, columns, config, names, problems, report)
    wanted = _Wanted(columns, config, choice)
    files = Files(folder, config) if columns.of_files else None
    records: Any = wanted.among(table.records(columns))
    if files:
        records = files.read(records, columns.inputs[0])
    gathered = _Gathered(columns)
    total = 0
    every = 32 if files else 1024  # a file is decoded, which takes some milliseconds
    for place, record, *read in with_progress(
        records, report, f"reading {origin}", every=every
    ):
        total += 1
        try:
            made = _inputs_of(record, columns, *read)
            label = _label_of(record, columns, config, names)
            values = [kept_value(record[name], name) for name in columns.kept]
            "".join([label, *values, *([] if files else made)]).encode()
        except (DataError, UnicodeEncodeError) as error:
            problems.add(place, error)
            continue
        gathered.add(record, made, label, values, total)
    if names is None and columns.label is not None:
        problems.check_labels(gathered.labels, sampled=config.limit is not None)
    problems.check(total)
    if not gathered.labels:
        left = (
            f"{wanted.skipped:,} of which nothing is to be encoded"
            if wanted.skipped
            else "none"
        )
        raise DataError(
            "no rows", expected="at least one row", found=left, where=origin
        )
    gathered.tell_kinds(split)
    if files and config.clip_mode == "split":
        gathered.kept[CLIP_OF] = [item.name for item in gathered.inputs]
    skipped, of_test = wanted.skipped, list[bool]()
    if choice is not None:
        skipped = max(skipped, choice.skipped)
        of_test = list(choice.held_out)
    return (files.kind if files else Texts)(
        inputs=gathered.inputs,
        labels=gathered.labels,
        class_names=names,
        origin=origin,
        kept=gathered.kept,
        skipped=skipped,
        labelled=columns.label is not None,
        units=gathered.numbers if files else (),
        held_out=[of_test[number - 1] for number in gathered.numbers]
        if of_test
        else (),
    )


class _Gathered:
    """What was read of a table so far, an entry for each row."""

    def __init__(self, columns: Columns) -> None:
        self.inputs, self.labels = list[Any](), list[str]()
        self.kept: dict[str, list[str]] = {name: [] for name in columns.kept}
        self.numbers = list[int]()
        """Of the record that a row was made of, from 1: several rows are pieces of one sound."""
        self._label, self._kinds = columns.label, set[str]()

    def add(
        self,
        record: Mapping[str, Any],
        made: Sequence[Any],
        label: str,
        values: Sequence[str],
        number: int,
    ) -> None:
        """Take the rows that were made of a record."""
        if self._label is not None:
            self._kinds.add(LABEL_KINDS[type(record[self._label])])
        for item in made:
            self.inputs.append(item)
            self.labels.append(label)
            self.numbers.append(number)
            for column, value in zip(self.kept.values(), values, strict=True):
                column.append(value)

    def tell_kinds(self, split: str) -> None:
        """Warn where labels are numbers in some rows and text in others."""
        if len(self._kinds) > 1:
            kinds = " in some rows, ".join(sorted(self._kinds))
            text = f"labels of '{split}' are {kinds} in others: is 1 the same class as '1'?"
            warnings.warn(text, GaamWarning, stacklevel=3)


class _Choice(NamedTuple):
    """Which rows a limit takes."""

    rows: Sequence[int]  # their numbers in the table, from 0, ascending
    held_out: Sequence[
        bool
    ] = ()  # whether each is of 'test', where splits are made of a table
    skipped: int = 0  # records of the whole table of which nothing is to be encoded


def _choose_rows(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    names: tuple[str, ...] | None,
    problems: "_Problems",
    report: ReportProgress,
) -> _Choice | None:
    """What a limit takes of a table, by the labels of all its rows; None: every row is read."""
    limit, fraction = config.limit, config.test_fraction
    if limit is None or (config.limit_rule == "first" and fraction is not None):
        return None
    if (
        config.test_groups is not None
    ):  # which rows are of 'test' their groups say, not labels
        return None
    if columns.label is None or config.limit_rule == "first":
        return _Choice(range(limit))
    inputs = columns.inputs if config.skip_empty else ()
    needed = columns._replace(inputs=inputs, kept=())
    rows = _Wanted(needed, config, None)
    labels = list[str]()
    total = 0
    records = rows.among(table.records(needed))
    for place, record in with_progress(
        records, report, f"reading the labels of {problems.origin}"
    ):
        total += 1
        try:
            labels.append(_label_of(record, columns, config, names))
        except DataError as error:
            problems.add(place, error)
    if names is None:
        problems.check_labels(labels)
    problems.check(total)
    if fraction is None:
        taken_N = limited(labels, limit)
        return _Choice(np.flatnonzero(taken_N).tolist(), skipped=rows.skipped)
    if total <= max(limit, FEWEST_ROWS):
        return None
    held_N = held_out(labels, fraction, config.split_seed)
    taken_N = np.zeros(total, np.bool_)
    for part_N in (~held_N, held_N):
        row_M = np.flatnonzero(part_N)
        taken_N[row_M] = limited([labels[row] for row in row_M.tolist()], limit)
    of_test = held_N[taken_N].tolist()
    return _Choice(np.flatnonzero(taken_N).tolist(), of_test, rows.skipped)


class _Wanted:
    """Records of which something is to be encoded, and that a limit takes."""

    def __init__(
        self, columns: Columns, config: ExtractConfig, choice: _Choice | None
    ) -> None:
        self.skipped = 0
        """Records of which nothing is to be encoded, so far."""
        self._columns, self._skip_empty = columns, config.skip_empty
        self._choice = choice

    def among(self, records: Iterator[Record]) -> Iterator[Record]:
        """Those among the records of a table, which is read no further than to the last."""
        rows = itertools.count() if self._choice is None else iter(self._choice.rows)
        wanted = next(rows, None)
        row = 0
        for place, record in records:
            if self._skip_empty and self._is_empty(record):
                self.skipped += 1
                continue
            if row == wanted:
                yield place, record
                wanted = next(rows, None)
            if wanted is None:
                return
            row += 1

    def _is_empty(self, record: Mapping[str, Any]) -> bool:
        cells = [record[column] for column in self._columns.inputs]
        if self._columns.of_files:
            return file_in(cells[0]) is None
        return all(
            cell is None or (isinstance(cell, str) and is_blank(cell)) for cell in cells
        )


class _Problems:
    """Rows of a split that cannot be used: how many, and the first of them."""

    def __init__(self, split: str, origin: str, config: ExtractConfig) -> None:
        self.origin = origin
        self._split, self._config = split, config
        self._count = 0
        self._first = list[tuple[str, DataError]]()
        self._unlabelled = Counter[str]()  # what stands where a label is missing

    def add(self, place: str, error: Exception) -> None:
        self._count += 1
        if not isinstance(error, DataError):  # it can neither be hashed nor tokenised
            error = DataError("a row holds half a character", found=str(error))
        if isinstance(error, NoLabelError):
            self._unlabelled[error.details["found"]] += 1
        if len(self._first) < SHOWN:
            self._first.append((place, error))

    def check_labels(self, labels: Sequence[str], *, sampled: bool = False) -> None:
        """Raise what is wrong with all labels together, whatever is wrong with single rows."""
        origin = (
            f"{self.origin}, column '{self._config.label_column}' of '{self._split}'"
        )
        odd_classes = self._config.odd_classes
        refuse_quantities(labels, origin, sampled=sampled, odd_classes=odd_classes)

    def check(self, total: int) -> None:
        """Raise what was wrong with some of ``total`` rows, if anything was."""
        if not self._first:
            return
        place, first = self._first[0]
        if self._unlabelled.total() == total:
            raise self._no_labels(place, total)
        first.details["where"] = f"{self.origin}, {place}"
        if self._count > 1:
            lines = [f"{row}: {error.reason}" for row, error in self._first]
            if self._count > SHOWN:
                lines.append(f"and {self._count - SHOWN:,} more")
            first.message = (
                f"{self._count:,} of {total:,} rows cannot be used: {first.message}"
            )
            first.details["found"] = "\n".join(lines)
        raise first

    def _no_labels(self, place: str, total: int) -> DataError:
        """The refusal of a split in which no row has a label."""
        splits = self._config.splits
        reference = "train" if "train" in splits else splits[0]
        hint = "--label-column names the column of the classes; rows without classes are for "
        hint += "gaam predict"
        if self._split != reference and self._config.test_fraction is None:
            others = " ".join(
                f"--split {name}" for name in splits if name != self._split
            )
            hint = f"--set unlabelled={self._split} keeps its rows to predict on; {others} alone "
            hint += "leaves them out"
        values = [
            f"{value} in {n:,} rows" for value, n in self._unlabelled.most_common(SHOWN)
        ]
        return DataError(
            f"'{self._split}' has no labels",
            expected="a class for each of its rows, or a split that is said to have none",
            found=f"of {total:,} rows: {', '.join(values)}",
            where=f"{self.origin}, {place}",
            hint=hint,
        )


def _inputs_of(
    record: Mapping[str, Any],
    columns: Columns,
    read: Callable[[], Sequence[Any]] | None = None,
) -> Sequence[Any]:
    """The text of a record, or what ``read`` makes of its file; never nothing."""
    if read is not None:
        made = read()
    else:
        text = text_of(record, columns.inputs)
        made = [] if text is None else [text]
    if not made:
        raise DataError(
            "a text is empty" if read is None else "no file is named",
            expected=f"something in {' + '.join(columns.inputs)}",
            found=", ".join(excerpt(record[column]) for column in columns.inputs),
            hint="remove such rows; gaam extract has --set skip-empty=true",
        )
    return made


def _label_of(
    record: Mapping[str, Any],
    columns: Columns,
    config: ExtractConfig,
    names: tuple[str, ...] | None,
) -> str:
    if columns.label is None:
        return NO_LABEL
    odd, strip = config.odd_classes, config.strip_labels
    return class_of(record[columns.label], names, strip=strip, odd_classes=odd)


def rows_from_inputs(
    rows: Sequence[str],
    kind: str,
    config: ExtractConfig,
    *,
    origin: str,
    places: Sequence[str],
) -> Rows:
    """Texts, or paths of files, that a program hands over, checked as those of a data set are."""
    records = zip(places, ({"row": row} for row in rows), strict=True)
    table = Table(["row"], lambda columns: iter(records))
    columns = Columns(("row",), None, of_files=kind != Texts.kind)
    settings = {
        "limit": None,
        "test_fraction": None,
        "skip_empty": False,
        "allow_outside": True,
    }
    every = replace(config, **settings)  # type: ignore[arg-type]
    found = collect(table, columns, every, split="", origin=origin, folder=Path.cwd())
    if found.kind != kind or len(found) != len(rows):
        what = "a file is not one row as those that were trained on"
        count = f"{len(found):,} of {found.kind} in {len(rows):,} files"
        raise DataError(
            what, expected=f"one row of {kind} each", found=count, where=origin
        )
    return found
