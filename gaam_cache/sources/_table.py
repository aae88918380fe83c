"""Tables with named columns: CSV, JSON lines, Parquet; and which columns make a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.config import ExtractConfig, delimiter_of
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
MARKS = {";": "semicolon", "\t": "tab", "|": "pipe"}
Record = tuple[str, Mapping[str, Any]]
"""Where a record stands ('line 7') and its values by column."""


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
    lines are no rows. A .txt file has a text on each line, in a column 'text'.
    """
    if path.suffix == ".parquet":
        return _parquet(path)
    rows = {".jsonl": _json_lines, ".txt": _text_lines}.get(path.suffix, _csv)(path, config)
    names: list[str] = next(rows, [])
    if not names or len(set(names)) < len(names):
        raise DataError(
            "the first line does not name every column differently",
            expected="distinct column names",
            found=", ".join(map(excerpt, names)) or "an empty file",
            where=f"{path}, line 1",
        )

    def records(columns: Columns) -> Iterator[Record]:
        wanted = columns.all
        for place, found in rows:
            if missing := [column for column in wanted if column not in found]:
                lacks = "a line lacks a column that the first line has"
                raise DataError(lacks, expected=", ".join(missing), where=f"{path}, {place}")
            yield place, found

    return Table(names, records if path.suffix == ".jsonl" else lambda columns: rows)


def _lines(path: Path, config: ExtractConfig, newline: str = "\n") -> Iterator[str]:
    number = 0
    try:
        with path.open(encoding=config.encoding or "utf-8-sig", newline=newline) as file:
            for number, line in enumerate(file, start=1):  # noqa: B007 said of what cannot be read
                yield line
    except OSError as error:
        message = f"cannot read '{path.name}'"
        raise StorageError(message, found=str(error), where=str(path)) from error
    except UnicodeError as error:
        encoding = config.encoding or "UTF-8"
        raise DataError(
            f"the file is not {encoding}",
            found=str(error),
            where=f"{path}, line {number + 1} or after",
            hint="convert it to UTF-8, or name its encoding: --set encoding=NAME, as cp1252",
        ) from error


# each of these yields the names of the columns first, and then the records


def _text_lines(path: Path, config: ExtractConfig) -> Iterator[Any]:
    name = config.file_column or "text"
    yield [name]
    for number, line in enumerate(_lines(path, config), start=1):
        yield f"line {number}", {name: line.rstrip("\r\n")}


def _csv(path: Path, config: ExtractConfig) -> Iterator[Any]:
    tabs = path.suffix == ".tsv" and config.delimiter is None
    delimiter = "\t" if tabs else delimiter_of(config)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    # pyarrow.csv takes all that follows an unclosed quote for one field
    reader = csv.reader(_lines(path, config, ""), strict=True, delimiter=delimiter)
    names, first = list[str](), 1
    try:
        for row in reader:
            last = reader.line_num
            place, first = (
                f"line {first}" if first == last else f"lines {first} to {last}",
                last + 1,
            )
            if row and not names:
                names = [name.strip() for name in row]
                yield names
            elif len(row) == len(names) > 0:
                yield place, dict(zip(names, row, strict=True))
            elif row:
                raise DataError(
                    "a row has the wrong number of fields",
                    expected=f"{len(names)} ({', '.join(names)})",
                    found=f"{len(row)} ({', '.join(map(excerpt, row[:8]))})",
                    where=f"{path}, {place}",
                    hint=f"quote a field that holds {delimiter!r} or a line break",
                )
    except csv.Error as error:
        raise DataError(
            "a quoted field is damaged or never closed",
            expected='a closing quote, and double quotes inside a quoted field: ""',
            found=str(error),
            where=f"{path}, the row that begins in line {first}",
        ) from error


def _json_lines(path: Path, config: ExtractConfig) -> Iterator[Any]:
    first = True
    for number, line in enumerate(_lines(path, config), start=1):
        if not line.strip():
            continue
        found: Any
        try:
            found = json.loads(line)
            said = excerpt(found)
        except (ValueError, RecursionError) as error:
            found, said = None, str(error)
        if not isinstance(found, dict):
            where, expected = f"{path}, line {number}", "one JSON object on each line"
            raise DataError("a line is no JSON object", expected=expected, found=said, where=where)
        if first:
            yield list(found)
        first = False
        yield f"line {number}", found


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    @contextmanager
    def reading() -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeError, OSError) as error:
            message, said = f"cannot read '{path.name}'", " ".join(str(error).split())
            raise DataError(message, expected="Parquet", found=said, where=str(path)) from error

    def records(columns: Columns) -> Iterator[Record]:
        size, number = BATCH_FILES if columns.of_files else BATCH_ROWS, 0
        with reading():
            for batch in file.iter_batches(size, columns=columns.all):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record

    with reading():
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        found, expected = ", ".join(schema.names), "distinct names"
        raise DataError("columns are called alike", expected=expected, found=found, where=str(path))
    stored = tuple(
        one.name
        for one in schema
        if pa.types.is_struct(one.type) and {part.name for part in one.type} == {"bytes", "path"}
    )
    return Table(list(schema.names), records, stored)


def choose(table: Table, config: ExtractConfig, label: str | None, origin: str) -> Columns:
    """The columns of a table that make rows; no ``label``: nobody asks for the classes."""
    file = config.file_column
    if file is None and not config.text_columns and "text" not in table.names:
        usual = [name for name in FILE_COLUMNS if name in (table.stored or table.names)]
        found = usual[:1] or (table.stored if len(table.stored) == 1 else ())
        file = next(iter(found), None)
    inputs = (config.text_columns or DEFAULT_TEXT_COLUMNS) if file is None else (file,)
    columns = Columns(inputs, label, config.keep_columns, file is not None)
    if label in inputs:
        what = f"'{label}' is label and input: every decoder would be right"
        raise ConfigError(what, expected="another --label-column or --text-column", where=origin)
    missing = [column for column in columns.all if column not in table.names]
    if not missing:
        return columns
    option, hint = "--keep-column", None
    if missing[0] in inputs:
        option = "--file-column" if columns.of_files else "--text-column"
        hint = "--text-column names a column of texts, --file-column one of sounds or pictures"
    elif missing[0] == label:
        option, hint = "--label-column", "a split without labels: --set unlabelled=SPLIT"
    if len(table.names) == 1 and (marks := [MARKS[one] for one in MARKS if one in table.names[0]]):
        hint = f"commas part the fields of a CSV file; here --set delimiter={marks[0]}"
    shown = [name if name.isprintable() else excerpt(name) for name in table.names]
    raise ConfigError(
        f"no column '{missing[0]}'",
        expected=f"one of: {', '.join(shown)}",
        found=f"{option} {missing[0]}",
        where=origin,
        hint=hint,
    )
