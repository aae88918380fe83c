"""Rows from tables on disk, CSV, JSON lines or Parquet: one for each split, or a single file."""

import csv
import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import DEFAULT_DATASET, ExtractConfig, delimiter_of
from gaam_cache.errors import DataError, GaamWarning, NotFoundError
from gaam_cache.messages import excerpt
from gaam_cache.settings import data_path
from gaam_cache.sources._base import Record, Rows, Source
from gaam_cache.sources._collect import Columns, Table, choose, collect
from gaam_cache.store.arrays import reading
from gaam_cache.terminal import Report

SUFFIXES = (".csv", ".jsonl", ".parquet", ".tsv")
PATHS = (*SUFFIXES, ".txt", "/")
TEST_FRACTION = 0.2
MAX_FIELD_CHARS = 64 * 2**20  # a longer field of a CSV file is an unclosed quote
BATCH_ROWS, BATCH_FILES = 4096, 16
"""Rows of Parquet that are in memory at a time: of texts, and of what holds sounds or pictures."""


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (or .tsv, .jsonl, .parquet), or one file: one split.

    A split without labels may be a ``<split>.txt``, a text a line.

    The bundled sample is such a folder: 480 short news items, written for this project.
    """

    priority: ClassVar[int] = 2

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """The bundled sample, whatever exists, and whatever is written like a path."""
        there = dataset == DEFAULT_DATASET or Path(dataset).expanduser().exists()
        return there or dataset.startswith((".", "/", "~")) or dataset.lower().endswith(PATHS)

    @classmethod
    def settled(cls, config: ExtractConfig) -> ExtractConfig:
        """Of one file that nobody split, a fifth of every class is held out for testing."""
        path = Path(config.dataset).expanduser()
        said = config.test_fraction is not None or config.splits != ("train", "test")
        if said or config.unlabelled or kind_of(path) not in SUFFIXES or not path.is_file():
            return config
        what = f"'{path.name}' is one file: {TEST_FRACTION:.0%} of every class are held out as"
        if config.test_groups is not None:
            what = f"'{path.name}' is one file: about {TEST_FRACTION:.0%} are held out as"
        warnings.warn(f"{what} 'test' (--test-fraction)", GaamWarning, stacklevel=3)
        return replace(config, test_fraction=TEST_FRACTION)

    def rows(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        bundled = config.dataset == DEFAULT_DATASET
        if bundled:
            columns, folder = config.text_columns or ("title", "description"), data_path()
            config = replace(config, dataset=f"{folder}/news_sample", text_columns=columns)
        path = _file_of(config, split)
        if kind_of(path) == ".txt":
            config = replace(config, text_columns=())
        table, origin = open_table(path, config), str(path)
        label = None if split in config.unlabelled else config.label_column
        chosen = choose(table, config, label, origin)
        rows = collect(table, chosen, config, origin=origin, folder=path.parent, report=report)
        return replace(rows, origin=f"{DEFAULT_DATASET}/{path.name}") if bundled else rows


def kind_of(path: Path) -> str:
    """How a table is written, as ``SUFFIXES`` has it: DATA.CSV is one too."""
    return path.suffix.lower()


def _file_of(config: ExtractConfig, split: str) -> Path:
    """The file of a split, in a folder or by itself; with ``test_fraction`` the only one."""
    path, only = Path(config.dataset).expanduser(), config.test_fraction is not None
    if not path.exists():
        raise NotFoundError(f"no file or folder at '{path}'", where=str(path.absolute()))
    there = sorted(path.iterdir()) if path.is_dir() else [path]
    suffixes = (*SUFFIXES, ".txt") if split in config.unlabelled else SUFFIXES
    there = [one for one in there if kind_of(one) in suffixes]
    anyway = only or (path.is_file() and len(config.splits) == 1)
    files = [one for one in there if anyway or one.stem == split]
    if len(files) == 1:
        return files[0]
    raise NotFoundError(
        f"no data for the split '{split}' at '{path}'",
        expected=f"one file {'' if only else split} ending in {', '.join(SUFFIXES)}",
        found=", ".join(one.name for one in there) or "no data files",
        where=str(path.absolute()),
        hint="name the splits there are with --split; --test-fraction 0.2 makes 'train' and 'test' "
        "of one file",
    )


def open_table(path: Path, config: ExtractConfig) -> Table:
    """A table in a file, of which no more than the names of its columns is read yet.

    CSV is as RFC 4180 has it, with a header; white space is part of names and values, blank lines
    are no rows. A .txt file, which has no labels, has a text on each line, in a column 'text'.
    """
    if (kind := kind_of(path)) == ".parquet":
        return _parquet(path)
    rows = {".jsonl": _json_lines, ".txt": _text_lines}.get(kind, _csv)(path, config)
    names: list[str] = next(rows, [])
    if not names or len(set(names)) < len(names):
        raise DataError(
            "the first line does not name every column differently",
            expected="distinct column names",
            found=", ".join(map(excerpt, names)) or "an empty file",
            where=f"{path}, line 1",
        )

    def records(columns: Columns) -> Iterator[Record]:
        wanted = set(columns.all)
        for place, found in rows:
            if lacking := wanted - found.keys():
                lacks = "a line lacks a column that the first line has"
                raise DataError(lacks, expected=", ".join(lacking), where=f"{path}, {place}")
            yield place, found

    return Table(names, records if kind == ".jsonl" else lambda columns: rows)


def _lines(path: Path, config: ExtractConfig, newline: str = "\n") -> Iterator[str]:
    try:
        with path.open(encoding=config.encoding or "utf-8-sig", newline=newline) as file:
            yield from file
    except (OSError, UnicodeError) as error:
        hint = "convert it to UTF-8, or name its encoding: gaam extract --set encoding=cp1252"
        message = f"the file cannot be read as {config.encoding or 'UTF-8'}"
        raise DataError(message, found=str(error), where=str(path), hint=hint) from error


# each of these yields the names of the columns first, and then the records


def _text_lines(path: Path, config: ExtractConfig) -> Iterator[Any]:
    name = config.file_column or "text"
    yield [name]
    for number, line in enumerate(_lines(path, config), start=1):
        yield f"line {number}", {name: line.rstrip("\r\n")}


def _csv(path: Path, config: ExtractConfig) -> Iterator[Any]:
    tabs = kind_of(path) == ".tsv" and config.delimiter is None
    delimiter = "\t" if tabs else delimiter_of(config)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    # pyarrow.csv takes all that follows an unclosed quote for one field
    reader = csv.reader(_lines(path, config, ""), strict=True, delimiter=delimiter)
    names, first = list[str](), 1
    try:
        for row in reader:
            place, first = f"line {first}", reader.line_num + 1
            if row and not names:
                names = row
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
    named = False
    for number, line in enumerate(_lines(path, config), start=1):
        found = None
        with suppress(ValueError, RecursionError):
            found = json.loads(line) if line.strip() else {}
        if not isinstance(found, dict):
            where, expected = f"{path}, line {number}", "one JSON object on each line"
            what = "a line is no JSON object"
            raise DataError(what, expected=expected, found=excerpt(line), where=where)
        if line.strip():
            if not named:
                yield list(found)
            named = True
            yield f"line {number}", found


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def records(columns: Columns) -> Iterator[Record]:
        size = BATCH_FILES if columns.of_files else BATCH_ROWS
        with reading(str(path)):
            batches = file.iter_batches(size, columns=columns.all)
            rows = (row for batch in batches for row in batch.to_pylist())
            yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))

    with reading(str(path)):
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    stored = tuple(
        one.name
        for one in schema
        if pa.types.is_struct(one.type) and {part.name for part in one.type} == {"bytes", "path"}
    )
    return Table(list(schema.names), records, stored)
