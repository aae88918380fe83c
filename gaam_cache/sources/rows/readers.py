"""Tables in files: CSV, JSON lines, JSON, Parquet, text, and what ``datasets`` saves."""

import codecs
import csv
import gzip
import json
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import DataError, GaamWarning, reading_file
from gaam_cache.common.messages import excerpt
from gaam_cache.config import ExtractConfig, delimiter_of
from gaam_cache.sources.base import Record
from gaam_cache.sources.rows.cells import BYTE_ORDER_MARK
from gaam_cache.sources.rows.collect import Columns, Table
from gaam_cache.sources.rows.layout import COMPRESSED, check_file, kind_of

MAX_FIELD_CHARS = 64 * 2**20  # a longer field of a CSV file is an unclosed quote
BATCH_ROWS, BATCH_FILES = 4096, 16
"""Rows of Parquet that are in memory at a time: of texts, and of what holds sounds or pictures."""
DATA = "data"
"""The key of a JSON object under which its records stand."""
MARKS = {  # the longer first: that of UTF-16 begins that of UTF-32
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-8-sig": (codecs.BOM_UTF8,),
}
"""Byte-order marks at the start of a file, by the encoding that reads them."""
GZIP = b"\x1f\x8b"
PIECE_BYTES = 2**20


def open_table(path: Path, config: ExtractConfig) -> Table:
    """A table in a file, of which no more than the names of its columns is read yet.

    CSV is as RFC 4180 has it, with a header; white space is part of names and values, blank lines
    are no rows. A .json holds an array of objects, an object with such an array under 'data', or
    an object a line. A .txt file, which has no labels, has a text on each line, in a column 'text'.
    """
    check_file(path)
    kind = kind_of(path)
    if kind == ".parquet":
        table = _parquet(path)
    else:
        readers = {".jsonl": _json_lines, ".json": _json, ".txt": _text_lines}
        table = _of_text(path, config, readers.get(kind, _csv))
        _tell_utf8(path, config)
    names = table.names
    if not names or len(set(names)) < len(names):
        of_parquet = kind == ".parquet"
        subject = "the file" if of_parquet else "the first line"
        raise DataError(
            f"{subject} does not name every column differently",
            expected="distinct column names",
            found=", ".join(map(excerpt, names)) or "an empty file",
            where=str(path) if of_parquet else f"{path}, line 1",
        )
    return table


def joined(files: Sequence[Path], config: ExtractConfig) -> Table:
    """One table of the files of a split, in their order."""
    tables = [open_table(path, config) for path in files]
    if len(tables) == 1:
        return tables[0]

    def records(columns: Columns) -> Iterator[Record]:
        for path, table in zip(files, tables, strict=True):
            lacking = [name for name in columns.all if name not in table.names]
            if lacking:
                raise DataError(
                    "a shard lacks a column that the first one has",
                    expected=", ".join(lacking),
                    found=", ".join(map(excerpt, table.names)),
                    where=str(path),
                )
            for place, record in table.records(columns):
                yield f"{path.name}, {place}", record

    return tables[0]._replace(records=records)


def byte_order_mark(path: Path) -> str | None:
    """The encoding whose mark a file begins with; None where it begins with none."""
    with suppress(OSError, EOFError, zlib.error), _opened(path) as file:
        head = file.read(4)
        for encoding, marks in MARKS.items():
            if head.startswith(marks):
                return encoding
    return None


def reads_mark(encoding: str, mark: str) -> bool:
    """Whether text in an encoding may begin with a mark: utf-8 with that of utf-8-sig."""
    return codecs.lookup(encoding).name.startswith(mark.removesuffix("-sig"))


def _tell_utf8(path: Path, config: ExtractConfig) -> None:
    """Say that a file which is read in another encoding may well be UTF-8."""
    asked = config.encoding
    if asked is None or codecs.lookup(asked).name.startswith("utf"):
        return
    decoder, plain = codecs.getincrementaldecoder("utf-8")(), True
    with (
        suppress(UnicodeDecodeError, OSError, EOFError, zlib.error),
        _opened(path) as file,
    ):
        while piece := file.read(PIECE_BYTES):
            plain &= decoder.decode(piece).isascii()
        decoder.decode(b"", final=True)
        if not plain:
            text = f"'{path.name}' is read as {asked}, and may be UTF-8, which all of it would be"
            warnings.warn(text, GaamWarning, stacklevel=3)


def _opened(path: Path) -> Any:
    """A file to read bytes from, as they were before they were compressed."""
    return gzip.open(path) if path.suffix.lower() == COMPRESSED else path.open("rb")


def _encoding_of(path: Path, config: ExtractConfig) -> str:
    """How to decode a file: as asked for, else UTF-8; a mark at its start has to agree."""
    mark, asked = byte_order_mark(path), config.encoding
    if mark is None or (mark == "utf-8-sig" and asked is None):
        return asked or "utf-8-sig"
    if asked is not None and reads_mark(asked, mark):
        return mark
    raise DataError(
        f"the file begins with the byte-order mark of {mark}",
        expected=f"text in {asked or 'UTF-8'}",
        where=str(path),
        hint=f"--set encoding={mark}",
    )


def _lines(path: Path, config: ExtractConfig, newline: str = "\n") -> Generator[str]:
    """The lines of a file, each with its end; a mark that files bring when joined is refused."""
    encoding = _encoding_of(path, config)
    compressed = path.suffix.lower() == COMPRESSED
    try:
        with (gzip.open if compressed else open)(
            path, "rt", encoding=encoding, newline=newline
        ) as file:
            for number, line in enumerate(file, start=1):
                if line[0] == BYTE_ORDER_MARK:
                    raise DataError(
                        "a line begins with a byte-order mark",
                        expected="such a mark at the start of a file alone",
                        found=excerpt(line),
                        where=f"{path}, line {number}",
                        hint="files were joined: remove the mark (U+FEFF) and the second header",
                    )
                yield line
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        if isinstance(error, DataError):
            raise
        hint = "convert it to UTF-8, or name its encoding: --set encoding=cp1252"
        if not isinstance(error, UnicodeError):
            hint = "get the file again"
        elif _head(path).startswith(GZIP):
            hint = f"it is compressed by gzip: call it {path.name}{COMPRESSED}"
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        message = f"the file cannot be read as {name}"
        raise DataError(
            message, found=str(error), where=str(path), hint=hint
        ) from error


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(GZIP))


Reader = Callable[[Path, ExtractConfig], Generator[Any]]
"""Yields the names of the columns first, and then the records."""


def _of_text(path: Path, config: ExtractConfig, read: Reader) -> Table:
    """A table that is read anew, from its start, whenever its records are asked for."""
    with closing(read(path, config)) as rows:
        names: list[str] = next(rows, [])

    def records(columns: Columns) -> Iterator[Record]:
        wanted = set(columns.all)
        with closing(read(path, config)) as rows:
            next(rows, None)
            for place, record in rows:
                lacking = wanted - record.keys()
                if lacking:
                    raise DataError(
                        "a line lacks a column that the first line has",
                        expected=", ".join(sorted(lacking)),
                        where=f"{path}, {place}",
                    )
                yield place, record

    return Table(names, records)


def _text_lines(path: Path, config: ExtractConfig) -> Generator[Any]:
    name = config.file_column or "text"
    yield [name]
    for number, line in enumerate(_lines(path, config), start=1):
        yield f"line {number}", {name: line.rstrip("\r\n")}


def _csv(path: Path, config: ExtractConfig) -> Generator[Any]:
    tabs = kind_of(path) == ".tsv" and config.delimiter is None
    delimiter = "\t" if tabs else delimiter_of(config)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    # pyarrow.csv takes all that follows an unclosed quote for one field
    reader = csv.reader(_lines(path, config, ""), strict=True, delimiter=delimiter)
    names, header, first = list[str](), [""], 1
    try:
        for row in reader:
            place, first = f"line {first}", reader.line_num + 1
            if row and not names:
                names, header = row, _plain(row)
                yield names
            elif (
                len(row) > 1
                and row[0].strip().casefold() == header[0]
                and _plain(row) == header
            ):
                raise DataError(
                    "the names of the columns stand in the file again",
                    expected="one header, in the first line",
                    found=", ".join(map(excerpt, row[:8])),
                    where=f"{path}, {place}",
                    hint="files were joined: remove that line",
                )
            elif len(row) == len(names) > 0:
                if delimiter == "\t" and any(
                    "\t" in field and "\n" in field for field in row
                ):
                    text = f"{path}, {place}: a quoted field holds tabs and line breaks; if the "
                    text += (
                        "file is written without quotes, rows are lost: write it as CSV"
                    )
                    warnings.warn(text, GaamWarning, stacklevel=2)
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


def _plain(row: list[str]) -> list[str]:
    """What a header has in common with itself in the next of several files."""
    return [field.strip().casefold() for field in row]


class _RepeatedKeyError(ValueError):
    """An object of JSON says two things under one key."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return made


def _decoded(text: str, where: str) -> Any:
    """A value of JSON; None where the text is none."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _RepeatedKeyError as error:
        raise DataError(
            "an object has a key twice",
            expected="every key once: nobody knows which value counts",
            found=excerpt(str(error)),
            where=where,
        ) from error
    except (ValueError, RecursionError):
        return None


def _json_lines(path: Path, config: ExtractConfig) -> Generator[Any]:
    named = False
    for number, line in enumerate(_lines(path, config), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _decoded(line, where)
        if not isinstance(record, dict):
            expected = "one JSON object on each line"
            problem = "a line is no JSON object"
            raise DataError(
                problem, expected=expected, found=excerpt(line), where=where
            )
        if not named:
            yield list(record)
        named = True
        yield f"line {number}", record


def _json(path: Path, config: ExtractConfig) -> Generator[Any]:
    """A document that holds an array of objects; else JSON lines."""
    if _is_json_lines(path, config):
        yield from _json_lines(path, config)
        return
    records = _decoded("".join(_lines(path, config)), str(path))
    if isinstance(records, dict):
        records = records.get(DATA)
    if not isinstance(records, list):
        raise DataError(
            "the file holds no records",
            expected=f"an array of objects, an object with one under '{DATA}', or JSON lines",
            found="another value, or no whole JSON",
            where=str(path),
        )
    for number, record in enumerate(records, start=1):
        place = f"record {number}"
        if not isinstance(record, dict):
            problem = "a record is no JSON object"
            raise DataError(problem, found=excerpt(record), where=f"{path}, {place}")
        if number == 1:
            yield list(record)
        yield place, record


def _is_json_lines(path: Path, config: ExtractConfig) -> bool:
    """Whether the first line is an object by itself, and not the one that holds all records."""
    with closing(_lines(path, config)) as lines:
        filled = (line for line in lines if line.strip())
        first, second = next(filled, ""), next(filled, None)
    record = _decoded(first, f"{path}, line 1")
    alone = second is None
    return isinstance(record, dict) and not (
        alone and isinstance(record.get(DATA), list)
    )


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def records(columns: Columns) -> Iterator[Record]:
        size = BATCH_FILES if columns.of_files else BATCH_ROWS
        with reading_file(str(path)), pq.ParquetFile(path) as file:
            batches = file.iter_batches(size, columns=columns.all)
            rows = (row for batch in batches for row in batch.to_pylist())
            yield from (
                (f"row {number}", row) for number, row in enumerate(rows, start=1)
            )

    with reading_file(str(path)):
        schema = pq.read_schema(path)
    stored = []
    for column in schema:
        parts = column.type if pa.types.is_struct(column.type) else ()
        if {part.name for part in parts} == {"bytes", "path"}:
            stored.append(column.name)
    return Table(list(schema.names), records, tuple(stored))


def dataset_table(data: Any, config: ExtractConfig) -> Table:
    """A table of the ``datasets`` library; sounds and pictures stay the bytes that they are."""
    import datasets

    stored = []
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Audio | datasets.Image):
            data = data.cast_column(
                column, type(feature)(decode=False)
            )  # decoding is ours
            stored.append(column)
    feature = data.features.get(config.label_column)
    declared = (
        tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None
    )

    def records(columns: Columns) -> Iterator[Record]:
        for number, record in enumerate(data.select_columns(columns.all), start=1):
            yield f"row {number}", record

    return Table(data.column_names, records, tuple(stored), declared)
