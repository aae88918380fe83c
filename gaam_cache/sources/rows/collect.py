"""Reads the records of a table and makes checked rows of them.

``choose_columns`` finds the columns to read. ``collect`` reads and checks the records.
A record makes one row, or several rows if its sound is cut into pieces.

Shapes: N records of a table, M records of one split of it.
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import is_blank
from gaam_cache.common.errors import ConfigError, DataError, GaamWarning
from gaam_cache.common.messages import counted, did_you_mean, excerpt
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.config import CLIP_OF, ExtractConfig
from gaam_cache.sources.base import FEWEST_ROWS, Record, Rows, Texts
from gaam_cache.sources.media.base import Files, file_in
from gaam_cache.sources.rows.cells import kept_value, text_of
from gaam_cache.sources.rows.holdout import held_out_of_target
from gaam_cache.sources.rows.labels import LabelReader
from gaam_cache.sources.rows.limit import rows_within_limit
from gaam_cache.sources.rows.problems import RowProblems

FILE_COLUMNS = ("file", "audio", "image", "img")
"""Usual names of a column of sounds or pictures; the first that exists is taken."""
LABEL_KINDS = {str: "text", int: "numbers", float: "numbers", bool: "truth values"}
"""Type of a label's cell -> its kind in words. A column of several kinds is suspicious:
the number 1 and the text '1' are one class."""
# records between two reports of progress: to decode a file takes milliseconds
FILES_PER_REPORT = 32
TEXTS_PER_REPORT = 1024
Decode = Callable[[], Sequence[Any]]
"""Decodes a file and returns the inputs that it holds."""
_FileRecord = tuple[str, Mapping[str, Any], Decode | None]
"""The location of a record, its values by column, and the function that decodes its
file; None in a table of texts."""


class Columns(NamedTuple):
    """The columns of a table that are read, by their use."""

    inputs: tuple[str, ...]  # columns whose texts are joined, or the column of files
    labels: tuple[str, ...]  # empty for a split without labels
    kept: tuple[str, ...] = ()  # columns that the cache keeps
    of_files: bool = False  # whether ``inputs`` is a column of sounds or pictures

    @property
    def all(self) -> list[str]:
        """The names of all columns that are read, each once."""
        return list(dict.fromkeys((*self.inputs, *self.labels, *self.kept)))


class Table(NamedTuple):
    """What is known of a table before its rows are read."""

    names: list[str]
    """Names of all columns."""
    records: Callable[[Columns], Iterator[Record]]
    """Reads the table from its start; records have these columns, and maybe more."""
    media_columns: tuple[str, ...] = ()
    """Columns whose cells hold the bytes of sounds or pictures."""
    class_names: tuple[str, ...] | None = None
    """Declared classes or labels, in order; whole numbers are their indices."""


def choose_columns(
    table: Table, config: ExtractConfig, labels: tuple[str, ...], origin: str
) -> Columns:
    """Choose the columns of a table that are read.

    Args:
        table: the table.
        config: the extraction; it may name the columns.
        labels: the columns of the labels; empty for a split without labels.
        origin: where the table is from, for messages.

    Raises:
        ConfigError: the table lacks a column, or the label is an input too.
    """
    file_column = _find_file_column(table, config)
    inputs = config.text_columns or ("text",)
    if file_column is not None:
        inputs = (file_column,)
    columns = Columns(inputs, labels, config.keep_columns, file_column is not None)

    shared = [name for name in labels if name in inputs]
    if shared:
        raise ConfigError(
            f"'{shared[0]}' is both label and input: every decoder would be right",
            expected="another --label-column or --text-column",
            where=origin,
        )
    missing = [column for column in columns.all if column not in table.names]
    if missing:
        hint = _how_to_name_column(missing[0], columns, config)
        raise _missing_column_error(missing[0], table, origin, hint)
    return columns


def _find_file_column(table: Table, config: ExtractConfig) -> str | None:
    """The column of sounds or pictures; None for a table of texts."""
    if config.file_column is not None:
        return config.file_column
    if config.text_columns or "text" in table.names:
        return None
    # a table that stores files in its cells has no column with names of files
    eligible = table.media_columns or table.names
    for name in FILE_COLUMNS:
        if name in eligible:
            return name
    # any column of sounds or pictures is better than no input
    if table.media_columns:
        return table.media_columns[0]
    return None


def _how_to_name_column(column: str, columns: Columns, config: ExtractConfig) -> str:
    """The option that names such a column.

    A prediction always has the name of the column of texts or files, from its run.
    """
    if column in columns.labels:
        return (
            "--label-column names the column of labels; --set unlabelled=SPLIT is for "
            "a split without labels"
        )
    if column in columns.kept:
        return "--keep-column names columns of the table"
    if config.file_column is not None:
        return "gaam extract --file-column names the column of sounds or pictures"
    hint = "--text-column names the column of texts"
    if not config.text_columns:
        hint += ", --file-column that of sounds or pictures"
    return hint


def _missing_column_error(
    column: str, table: Table, origin: str, hint: str
) -> ConfigError:
    """The error for a column that a table lacks; it lists and suggests columns."""
    suggestion = did_you_mean(column, table.names)
    if suggestion:
        hint = f"{suggestion} {hint}"
    # a wrong delimiter leaves the whole header as the name of a single column
    if len(table.names) == 1 and any(mark in table.names[0] for mark in ";\t| "):
        hint = "no commas between fields: --set delimiter=semicolon (or tab, pipe)"

    # quotes show white space and control characters, which are part of a name
    names = []
    for name in table.names:
        is_plain = name.isprintable() and name == name.strip()
        names.append(name if is_plain else excerpt(name))
    return ConfigError(
        f"no column '{column}'",
        expected=f"one of: {', '.join(names)}",
        where=origin,
        hint=hint,
    )


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
    """Read the records of a table, check them and make rows of them.

    With a limit, a table with labels is read twice: all labels first, and then only the
    rows that the limit takes.

    Args:
        table: the table.
        columns: the columns that make rows.
        config: the extraction.
        split: name of the split, for messages.
        origin: where the rows are from, for messages and provenance.
        folder: the folder to which the paths of files in the table are relative.
        report: called with the number of records so far.

    Raises:
        DataError: rows cannot be used. The error says how many, and names the first
            ones.
    """
    label_reader = LabelReader(
        config, column_names=columns.labels, declared_names=table.class_names
    )
    problems = RowProblems(split, origin, config, label_reader)
    # None if there is no limit, or if ``Source.read`` applies it to all rows
    selection = _select_records(table, columns, config, label_reader, problems, report)

    # read the records, only those that the limit takes
    record_filter = _RecordFilter(columns, config, label_reader, selection)
    selected_records = record_filter.apply(table.records(columns))
    files = Files(folder, config) if columns.of_files else None
    collected = _collect_records(
        _with_files(selected_records, columns, files, report, origin),
        columns,
        label_reader,
        problems,
    )

    # refuse rows that cannot be used, and warn of labels of two kinds
    problems.refuse_unusable_rows(
        collected.labels, collected.num_records, sampled=config.limit is not None
    )
    if not collected.labels:
        raise _no_rows_error(record_filter.skipped, origin)
    collected.labels = label_reader.rounded(collected.labels, origin)
    collected.warn_of_label_kinds(split)

    return _build_rows(
        collected,
        label_reader,
        files,
        config,
        origin=origin,
        skipped=record_filter.skipped,
        is_test=_is_test_by_row(collected, selection),
    )


def _build_rows(
    collected: "_CollectedRows",
    label_reader: LabelReader,
    files: Files | None,
    config: ExtractConfig,
    *,
    origin: str,
    skipped: "_Skipped",
    is_test: Sequence[bool],
) -> Rows:
    """Rows of a split, of the class for their kind: texts, sounds or pictures.

    Args:
        collected: the rows that were read.
        label_reader: has read their labels.
        files: has decoded their files; None for texts.
        config: the extraction.
        origin: where the rows are from.
        skipped: numbers of records that were left out.
        is_test: whether each row goes to 'test'; empty if that is not decided yet.
    """
    row_class: type[Rows] = Texts
    sound_numbers: Sequence[int] = ()
    if files is not None:
        row_class = files.row_class()
        # pieces of one sound share the number of its record; a picture has its own
        sound_numbers = collected.record_numbers
        # Sounds are cut into pieces, which belong together in every split. So the cache
        # keeps the name of each piece's sound in a column.
        if config.clip_mode == "split":
            collected.kept_columns[CLIP_OF] = [piece.name for piece in collected.inputs]
    return row_class(
        inputs=collected.inputs,
        labels=collected.labels,
        class_names=label_reader.declared_names,
        origin=origin,
        kept_columns=collected.kept_columns,
        num_skipped=skipped.empty,
        num_without_label=skipped.without_label,
        task=label_reader.target_class.task,
        labelled=label_reader.has_labels,
        sound_numbers=sound_numbers,
        is_test=is_test,
    )


def _no_rows_error(skipped: "_Skipped", origin: str) -> DataError:
    """The error for a table that has no rows, or only rows that were skipped."""
    rows = "none"
    hint: str | None = None
    if sum(skipped):
        rows = (
            f"rows that were left out: {skipped.empty:,} empty ones, "
            f"{skipped.without_label:,} without a label"
        )
    if skipped.without_label:
        hint = "--set unlabelled=SPLIT keeps a split without labels to predict on"
    return DataError(
        "no rows", expected="at least one row", found=rows, where=origin, hint=hint
    )


def _collect_records(
    records: Iterable[_FileRecord],
    columns: Columns,
    label_reader: LabelReader,
    problems: RowProblems,
) -> "_CollectedRows":
    """The rows of all usable records; unusable records are added to ``problems``.

    Args:
        records: the location and the values of every record, and the function that
            decodes its file; None in place of the function in a table of texts.
        columns: the columns that are read.
        label_reader: reads the labels.
        problems: collects the errors of unusable records.
    """
    collected = _CollectedRows(columns)
    for number, (location, record, decode) in enumerate(records, start=1):
        collected.num_records = number
        try:
            checked_record = _check_record(record, columns, label_reader, decode)
        # the second error is that of a text with half a character
        except (DataError, UnicodeEncodeError) as error:
            problems.add(location, error)
        else:
            collected.add(checked_record, number)
    return collected


def _with_files(
    records: Iterable[Record],
    columns: Columns,
    files: Files | None,
    report: ReportProgress,
    origin: str,
) -> Iterator[_FileRecord]:
    """Yield the location and the values of every record, and a decoder of its file.

    The decoder is a function without arguments that returns the inputs in the file.

    Args:
        records: the location and the values of every record.
        columns: the columns that are read.
        files: finds and decodes files. None for a table of texts: the decoder of every
            record is None too.
        report: called with the number of records so far.
        origin: where the records are from, for the report.
    """
    text = f"reading {origin}"
    if files is None:
        without_files = ((location, record, None) for location, record in records)
        yield from with_progress(without_files, report, text, every=TEXTS_PER_REPORT)
    else:
        [file_column] = columns.inputs
        with_decoders = files.read(records, file_column)
        yield from with_progress(with_decoders, report, text, every=FILES_PER_REPORT)


class _CheckedRecord(NamedTuple):
    """A record that can be used. Each of its inputs becomes a row."""

    inputs: Sequence[Any]  # one, or several pieces of a sound
    label: str
    label_kind: str | None  # of ``LABEL_KINDS``; None where rows have no classes
    kept_values: Sequence[str]


def _check_record(
    record: Mapping[str, Any],
    columns: Columns,
    label_reader: LabelReader,
    decode: Decode | None,
) -> _CheckedRecord:
    """Check a record and read its inputs, its label and its kept values.

    Raises:
        DataError: a cell is missing or cannot be used.
        UnicodeEncodeError: a text contains an unpaired surrogate: half a character.
    """
    inputs = _inputs_of(record, columns, decode)
    label = label_reader.read(record)
    kept_values = [kept_value(record[name], name) for name in columns.kept]

    # an unpaired surrogate can be neither hashed nor stored: encode raises its error
    texts = [label, *kept_values]
    if decode is None:
        texts.extend(inputs)
    "".join(texts).encode()

    # a class may be written as a number in one row and as a text in another
    label_kind: str | None = None
    if label_reader.has_labels and label_reader.is_classification:
        [label_column] = columns.labels
        label_kind = LABEL_KINDS[type(record[label_column])]
    return _CheckedRecord(inputs, label, label_kind, kept_values)


def _inputs_of(
    record: Mapping[str, Any], columns: Columns, decode: Decode | None
) -> Sequence[Any]:
    """The inputs of a record: its text, or the sounds or pictures in its file.

    Args:
        record: the values of the record by column.
        columns: the columns that are read.
        decode: decodes the file of the record; None in a table of texts.

    Raises:
        DataError: the record has no input.
    """
    if decode is None:
        problem = "a text is empty"
        text = text_of(record, columns.inputs)
        inputs: Sequence[Any] = [] if text is None else [text]
    else:
        problem = "no file is named"
        inputs = decode()
    if not inputs:
        raise DataError(
            problem,
            expected=f"something in {' + '.join(columns.inputs)}",
            found=", ".join(excerpt(record[column]) for column in columns.inputs),
            hint="leave such rows out, as gaam extract --set skip-empty=true does",
        )
    return inputs


class _CollectedRows:
    """The rows that were read so far, as parallel lists with one entry a row."""

    def __init__(self, columns: Columns) -> None:
        self.num_records = 0  # read so far, usable or not
        self.inputs = list[Any]()
        self.labels = list[str]()
        self.kept_columns: dict[str, list[str]] = {name: [] for name in columns.kept}
        self.record_numbers = list[int]()
        """The number of every row's record, from 1: pieces of a sound share one."""
        self._label_kinds = set[str]()  # kinds of the labels' cells, ``LABEL_KINDS``

    def add(self, record: _CheckedRecord, number: int) -> None:
        """Add the rows of a record: one row for each of its inputs.

        ``number`` counts all records that were read, from 1.
        """
        if record.label_kind is not None:
            self._label_kinds.add(record.label_kind)
        for row_input in record.inputs:
            self.inputs.append(row_input)
            self.labels.append(record.label)
            self.record_numbers.append(number)
            for column, value in zip(
                self.kept_columns.values(), record.kept_values, strict=True
            ):
                column.append(value)

    def warn_of_label_kinds(self, split: str) -> None:
        """Warn if labels are numbers in some rows and text in others."""
        if len(self._label_kinds) > 1:
            kinds = " in some rows, ".join(sorted(self._label_kinds))
            warnings.warn(
                f"labels of '{split}' are {kinds} in others: is 1 the same class "
                "as '1'?",
                GaamWarning,
                stacklevel=3,
            )


class _Skipped(NamedTuple):
    """Numbers of records of a table that were left out."""

    empty: int = 0  # by ``skip_empty``
    without_label: int = 0  # by ``skip_unlabelled``


class _Selection(NamedTuple):
    """The records that a limit takes."""

    record_indices: Sequence[int]  # from 0, ascending; skipped records have no index
    is_test: Sequence[bool] = ()  # whether each goes to 'test', if that is known
    skipped: _Skipped = _Skipped()  # records of the whole table


def _is_test_by_row(
    collected: _CollectedRows, selection: _Selection | None
) -> Sequence[bool]:
    """Whether each row goes to 'test'; empty if that is not decided yet.

    Args:
        collected: the rows, made of the selected records only.
        selection: the records that a limit takes, and for each whether it goes to
            'test', if a test fraction divides the table; None without a limit.
    """
    if selection is None or not selection.is_test:
        return ()
    # Only selected records were read: the record of number 1 is the first of them. All
    # pieces of a sound share a record, and so go to the same split.
    return [selection.is_test[number - 1] for number in collected.record_numbers]


def _select_records(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    label_reader: LabelReader,
    problems: RowProblems,
    report: ReportProgress,
) -> _Selection | None:
    """Choose the records that ``--limit`` takes.

    ``--limit`` is the largest number of rows of a split. To give every class its share
    of them, this reads all labels of the table. Labels that cannot be used are added to
    ``problems``, which then raises an error.

    Returns:
        The records; None if all records have to be read, because there is no limit or
        because ``Source.read`` applies it to all rows.
    """
    limit = config.limit
    fraction = config.test_fraction
    takes_first_rows = config.limit_rule == "first"
    # only when all rows are read is it known which come first in 'train' and in 'test'
    if limit is None or (takes_first_rows and fraction is not None):
        return None
    # groups, not labels, decide about 'test', so the limit has to wait for them
    if config.test_groups is not None:
        return None
    if not columns.labels or takes_first_rows:
        return _Selection(record_indices=range(limit))

    labels, skipped = _read_labels(
        table, columns, config, label_reader, problems, report
    )
    # each split takes the same share of every stratum, such as a class
    row_strata = label_reader.target_class.strata(labels)
    if fraction is None:
        is_taken_N = rows_within_limit(row_strata, limit)
        return _Selection(
            record_indices=np.flatnonzero(is_taken_N).tolist(), skipped=skipped
        )
    # the limit takes all of them, so that there is nothing to select
    if len(labels) <= limit:
        return None
    # too few to divide: ``Source.read`` refuses them
    if len(labels) <= FEWEST_ROWS:
        return None
    is_test_N = held_out_of_target(
        label_reader.target_class, labels, fraction, config.split_seed
    )
    return _select_in_both_splits(row_strata, is_test_N, limit, skipped)


def _select_in_both_splits(
    row_strata: Sequence[str],
    is_test_N: NDArray[np.bool_],
    limit: int,
    skipped: _Skipped,
) -> _Selection:
    """Choose the records that ``--limit`` takes of 'train' and of 'test'.

    Args:
        row_strata: the stratum of every record, such as its class. A split takes the
            same share of every stratum.
        is_test_N: whether each record goes to 'test'; all others go to 'train'.
        limit: largest number of rows of each of the two splits.
        skipped: numbers of skipped records, which have no index.
    """
    is_taken_N = np.zeros(len(row_strata), np.bool_)
    for is_in_split_N in (~is_test_N, is_test_N):
        index_M = np.flatnonzero(is_in_split_N)
        split_strata = [row_strata[index] for index in index_M.tolist()]
        is_taken_N[index_M] = rows_within_limit(split_strata, limit)
    return _Selection(
        record_indices=np.flatnonzero(is_taken_N).tolist(),
        is_test=is_test_N[is_taken_N].tolist(),
        skipped=skipped,
    )


def _read_labels(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    label_reader: LabelReader,
    problems: RowProblems,
    report: ReportProgress,
) -> tuple[list[str], _Skipped]:
    """Read the labels of all records, without their inputs where possible.

    Returns:
        The label of every record that is not skipped, and the numbers of those that
        are.

    Raises:
        DataError: a label cannot be used.
    """
    # inputs take long to read, and only ``skip_empty`` needs them here
    inputs = columns.inputs if config.skip_empty else ()
    first_pass = columns._replace(inputs=inputs, kept=())
    # without a selection the filter leaves out skipped records only
    record_filter = _RecordFilter(first_pass, config, label_reader, selection=None)
    records = record_filter.apply(table.records(first_pass))
    message = f"reading the labels of {problems.origin}"

    labels = list[str]()
    num_records = 0
    for location, record in with_progress(records, report, message):
        num_records += 1
        try:
            labels.append(label_reader.read(record))
        except (DataError, UnicodeEncodeError) as error:
            problems.add(location, error)
    problems.refuse_unusable_rows(labels, num_records)
    rounded_labels = label_reader.rounded(labels, problems.origin)
    return rounded_labels, record_filter.skipped


class _RecordFilter:
    """Lets through the records that a limit takes.

    Before the limit counts, empty records are left out if ``skip_empty`` is set, and
    records without a label if ``skip_unlabelled`` is.

    Args:
        columns: the columns that are read.
        config: the extraction; it says which records are skipped.
        label_reader: knows which records have a label.
        selection: the records that a limit takes; None for all.
    """

    def __init__(
        self,
        columns: Columns,
        config: ExtractConfig,
        label_reader: LabelReader,
        selection: _Selection | None,
    ) -> None:
        # what ``apply`` has left out so far
        self._num_empty = 0
        self._num_without_label = 0
        self._columns = columns
        self._skip_empty = config.skip_empty
        self._skip_unlabelled = config.skip_unlabelled
        self._label_reader = label_reader
        self._selection = selection

    @property
    def skipped(self) -> _Skipped:
        """Numbers of records of the table that were left out.

        With a limit this filter may stop before the end of the table. The selection of
        the records has read all of it, so its numbers may be larger.
        """
        selection_skipped = _Skipped()
        if self._selection is not None:
            selection_skipped = self._selection.skipped
        return _Skipped(
            empty=max(self._num_empty, selection_skipped.empty),
            without_label=max(self._num_without_label, selection_skipped.without_label),
        )

    def apply(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the selected records, and read no record after the last of them.

        Args:
            records: the location and the values of every record of the table.
        """
        # without a limit all indices are selected, which never end
        selected_indices: Iterator[int] = itertools.count()
        if self._selection is not None:
            selected_indices = iter(self._selection.record_indices)
        next_selected = next(selected_indices, None)

        index = 0
        for location, record in records:
            # a skipped record has no index
            if self._skip_empty and self._is_empty(record):
                self._num_empty += 1
                continue
            if self._skip_unlabelled and self._label_reader.lacks_label(record):
                self._num_without_label += 1
                continue
            # the indices ascend, so one comparison a record is enough
            if index == next_selected:
                yield location, record
                next_selected = next(selected_indices, None)
            # all selected records were read
            if next_selected is None:
                return
            index += 1

    def _is_empty(self, record: Mapping[str, Any]) -> bool:
        """Whether a record names no file, or has no visible text."""
        cells = [record[column] for column in self._columns.inputs]
        # a file is a single cell, which may hold bytes
        if self._columns.of_files:
            return file_in(cells[0]) is None
        return all(
            cell is None or (isinstance(cell, str) and is_blank(cell)) for cell in cells
        )


def rows_from_inputs(
    inputs: Sequence[str],
    kind: str,
    config: ExtractConfig,
    *,
    origin: str,
    locations: Sequence[str],
) -> Rows:
    """Checked rows of the texts or files that a program passes.

    Args:
        inputs: texts, or paths of files.
        kind: kind of the inputs, such as 'text'.
        config: the extraction; its settings of a data set do not apply.
        origin: where the inputs are from, for messages.
        locations: of every input, such as 'line 7', for messages.

    Raises:
        DataError: an input cannot be used, or does not make exactly one row.
    """
    column = "row"
    # a table of one column: a program passes inputs, and no labels
    records = zip(locations, ({column: value} for value in inputs), strict=True)
    table = Table(names=[column], records=lambda columns: iter(records))
    columns = Columns(inputs=(column,), labels=(), of_files=kind != Texts.kind)
    # the caller, not a data set, names the files: they may lie anywhere
    config = replace(
        config, limit=None, test_fraction=None, skip_empty=False, allow_outside=True
    )
    rows = collect(table, columns, config, split="", origin=origin, folder=Path.cwd())
    if rows.kind != kind or len(rows) != len(inputs):
        raise DataError(
            "a file does not give exactly one row of the kind that was trained on",
            expected=f"one row of {kind} each",
            found=f"{len(rows):,} of {rows.kind} in {counted(len(inputs), 'file')}",
            where=origin,
        )
    return rows
