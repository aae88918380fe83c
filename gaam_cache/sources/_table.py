"""Tables with named columns: CSV, JSON lines, Parquet; and which columns make a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import delimiter_of
from gaam_cache.errors import ConfigError, DataError, StorageError
from gaam_cache.messages import excerpt

SUFFIXES = (".csv", ".jsonl", ".parquet", ".tsv")
DEFAULT_TEXT_COLUMNS = ("text",)
FILE_COLUMNS = ("file", "audio", "image", "img")
"""What a column of sounds or pictures is called where nobody says so; the first that is there."""
MAX_FIELD_CHARS = 64 * 2**20
"""A longer field of a CSV file is an unclosed quote."""
BATCH_ROWS, BATCH_FILES = 4096, 16
"""Rows of Parquet that are in memory at a time: of texts, and of what holds sounds or pictures."""
Record = tuple[str, Mapping[str, Any] | DataError]
"""Where a record stands ('line 7') and its values by column; or why it is none."""


class Columns(NamedTuple):
    """The columns of a table that are read, by what they are read for."""

    inputs: tuple[str, ...]
    """Those that make an input together."""
    label: str | None
    """That of the class; None where nobody knows it."""
    kept: tuple[str, ...] = ()
    of_files: bool = False
    """Whether the input is a sound or picture, of one column; else it is a text."""

    @property
    def all(self) -> list[str]:
        """Each once."""
        label = () if self.label is None else (self.label,)
        return list(dict.fromkeys((*self.inputs, *label, *self.kept)))


class Table(NamedTuple):
    """What is known of a table before its rows are read."""

    names: list[str]
    """Of all columns."""
    records: Callable[[Columns], Iterator[Record]]
    """Reads it, once; of every record at least those columns."""
    stored: tuple[str, ...] = ()
    """Columns that hold sounds or pictures themselves."""
    class_names: tuple[str, ...] | None = None
    """All classes in order where they are declared; whole numbers then index them."""


def open_table(path: Path, config: ExtractConfig) -> Table:
    """A table in a file, of which no more than the names of its columns is read yet.

    CSV is as RFC 4180 has it, with a header; white space around column names does not count, blank
    lines are no rows. ``delimiter`` and ``encoding`` say otherwise; a .tsv file
    has tabs. A .txt file has a text on each line, in a column 'text'.

    Raises:
        DataError: what is wrong and where, also while iterating.
        StorageError: the file cannot be read.
    """
    readers = {".jsonl": _json_lines, ".parquet": _parquet, ".txt": _text_lines}
    try:
        return readers.get(path.suffix, _csv)(path, config)
    except OSError as error:
        raise StorageError(
            f"cannot read '{path.name}'", found=str(error), where=str(path)
        ) from error


def _csv(path: Path, config: ExtractConfig) -> Table:
    delimiter = delimiter_of(config)
    if path.suffix == ".tsv" and config.delimiter is None:
        delimiter = "\t"
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    rows = _csv_rows(path, config, delimiter)
    _, header = next(rows, ("", []))
    names = [name.strip() for name in header]
    if not names or len(set(names)) < len(names):
        raise DataError(
            "the first line is no header",
            expected="distinct column names",
            found=", ".join(map(excerpt, names)) or "an empty file",
            where=f"{path}, line 1",
        )

    def records(columns: Columns) -> Iterator[Record]:  # noqa: ARG001 all are there
        for place, row in rows:
            if len(row) == len(names):
                yield place, dict(zip(names, row, strict=True))
                continue
            yield (
                place,
                DataError(
                    "a row has the wrong number of fields",
                    expected=f"{len(names)} ({', '.join(names)})",
                    found=f"{len(row)} ({', '.join(map(excerpt, row[:8]))})",
                    hint=f"quote a field that holds {delimiter!r} or a line break",
                ),
            )

    return Table(names, records)


def _csv_rows(path: Path, config: ExtractConfig, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    with path.open(encoding=config.encoding or "utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True, delimiter=delimiter)
        first = 1
        try:
            for row in reader:
                last = reader.line_num
                if row:
                    yield (f"line {first}" if first == last else f"lines {first} to {last}"), row
                first = last + 1
        except csv.Error as error:
            raise DataError(
                "a quoted field is damaged or never closed",
                expected='a closing quote, and double quotes inside a quoted field: ""',
                found=str(error),
                where=f"{path}, the row that begins in line {first}",
            ) from error
        except UnicodeError as error:
            raise _not_text(path, config, first, error) from error


def _json_lines(path: Path, config: ExtractConfig) -> Table:
    objects = _json_objects(path, config)
    place, first = next(objects, ("", {}))
    if isinstance(first, DataError) or not first:
        raise DataError(
            f"'{path.name}' holds no rows",
            expected="one JSON object on each line",
            found=first.details.get("found", "") if isinstance(first, DataError) else "none",
            where=f"{path}, line 1",
        )

    def records(columns: Columns) -> Iterator[Record]:
        yield place, first
        for where, found in objects:
            missing = [] if isinstance(found, DataError) else set(columns.all) - set(found)
            if missing:
                lacks = "a line lacks a column that the first line has"
                yield where, DataError(lacks, expected=", ".join(sorted(missing)))
            else:
                yield where, found

    return Table(list(first), records)


def _json_objects(path: Path, config: ExtractConfig) -> Iterator[Record]:
    with path.open(encoding=config.encoding or "utf-8-sig", newline="\n") as file:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                found: Any
                try:
                    found = json.loads(line, object_pairs_hook=_once)
                except (ValueError, RecursionError) as error:
                    found = error
                if not isinstance(found, dict):
                    said = str(found) if isinstance(found, Exception) else excerpt(found)
                    one = "one JSON object on each line"
                    found = DataError("a line is no JSON object", expected=one, found=said)
                yield f"line {number}", found
        except UnicodeError as error:
            raise _not_text(path, config, number + 1, error) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose keys differ; ValueError for another."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {excerpt(max(keys, key=keys.count))} stands twice")
    return found


def _text_lines(path: Path, config: ExtractConfig) -> Table:
    def records(columns: Columns) -> Iterator[Record]:
        with path.open(encoding=config.encoding or "utf-8-sig", newline="\n") as file:
            number = 0
            try:
                for number, line in enumerate(file, start=1):
                    yield f"line {number}", dict.fromkeys(columns.inputs, line.rstrip("\r\n"))
            except UnicodeError as error:
                raise _not_text(path, config, number + 1, error) from error

    return Table([config.file_column or "text"], records)


def _not_text(path: Path, config: ExtractConfig, line: int, error: UnicodeError) -> DataError:
    encoding = config.encoding or "UTF-8"
    return DataError(
        f"the file is not {encoding}",
        expected=f"text in {encoding}",
        found=str(error),
        where=f"{path}, line {line} or after",
        hint="convert it to UTF-8, or name its encoding: --set encoding=NAME, as cp1252 or utf-16",
    )


def _parquet(path: Path, config: ExtractConfig) -> Table:  # noqa: ARG001 it says all itself
    import pyarrow as pa
    import pyarrow.parquet as pq

    def unreadable(error: Exception) -> DataError:
        said = " ".join(str(error).split())
        return DataError(
            f"cannot read '{path.name}'", expected="Parquet", found=said, where=str(path)
        )

    def records(columns: Columns) -> Iterator[Record]:
        wanted = [name for name in schema.names if name in columns.all]
        number = 0
        try:
            for batch in file.iter_batches(
                BATCH_FILES if columns.of_files else BATCH_ROWS, columns=wanted
            ):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record
        except (pa.ArrowException, UnicodeError, OSError) as error:
            raise unreadable(error) from error

    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    except (pa.ArrowException, UnicodeError) as error:
        raise unreadable(error) from error
    if repeated := {name for name in schema.names if schema.names.count(name) > 1}:
        raise DataError(
            "columns are called alike",
            expected="distinct names",
            found=", ".join(sorted(repeated)),
            where=str(path),
        )
    stored = tuple(
        one.name
        for one in schema
        if pa.types.is_struct(one.type) and {part.name for part in one.type} == {"bytes", "path"}
    )
    return Table(list(schema.names), records, stored)


def choose(table: Table, config: ExtractConfig, label: str | None, origin: str) -> Columns:
    """The columns of a table that make rows.

    Args:
        table: the table.
        config: names columns.
        label: that of the classes; None where nobody asks for them.
        origin: file or hub id.

    Raises:
        ConfigError: a column that is named, or the usual one, is missing, or is label and input.
    """
    file = _file_column(table, config)
    inputs = (config.text_columns or DEFAULT_TEXT_COLUMNS) if file is None else (file,)
    columns = Columns(inputs, label, config.keep_columns, file is not None)
    if label in inputs:
        raise ConfigError(
            "the labels are read as inputs too: every decoder would be right",
            expected="another --label-column, or other columns of inputs",
            found=f"'{label}' as both",
            where=origin,
        )
    for column in columns.all:
        if column not in table.names:
            raise _no_column(column, columns, table.names, origin)
    return columns


def _file_column(table: Table, config: ExtractConfig) -> str | None:
    """The column of sounds or pictures, where the rows are these."""
    if config.file_column is not None:
        return config.file_column
    if config.text_columns or set(DEFAULT_TEXT_COLUMNS) & set(table.names):
        return None
    usual = [name for name in FILE_COLUMNS if name in (table.stored or table.names)]
    return usual[0] if usual else table.stored[0] if len(table.stored) == 1 else None


def _no_column(column: str, columns: Columns, names: Sequence[str], origin: str) -> ConfigError:
    option, hint = "--keep-column", None
    if column in columns.inputs:
        option = "--file-column" if columns.of_files else "--text-column"
        hint = "--text-column names a column of texts, --file-column one of sounds or pictures"
    elif column == columns.label:
        option, hint = "--label-column", "a split without labels: --set unlabelled=SPLIT"
    marks = {";": "semicolon", "\t": "tab", "|": "pipe"}
    if len(names) == 1 and (found := [mark for mark in marks if mark in names[0]]):
        hint = f"commas part the fields of a CSV file; here --set delimiter={marks[found[0]]}"
    shown = [name if name.isprintable() else excerpt(name) for name in names]
    return ConfigError(
        f"no column '{column}'",
        expected=f"one of: {', '.join(shown)}",
        found=f"{option} {column}",
        where=origin,
        hint=hint,
    )
