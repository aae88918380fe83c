"""Rows from CSV, JSON-lines and Parquet files on disk."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError, NotFoundError
from gaam_cache.sources._base import Rows, Source, collect

SUFFIXES = (".csv", ".jsonl", ".parquet")
MAX_FIELD_CHARS = 64 * 2**20
"""A longer CSV field means an unclosed quote, not a text."""

Record = tuple[str, Mapping[str, Any]]


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (or .jsonl, .parquet), or one file that is one split."""

    priority: ClassVar[int] = 1

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whatever exists, and whatever is written like a path."""
        return (
            Path(dataset).expanduser().exists()
            or dataset.startswith((".", "/", "~"))
            or dataset.endswith(SUFFIXES)
        )

    def read(self, config: ExtractConfig, split: str) -> Rows:
        """Read the file that holds ``split``."""
        path = find_file(Path(config.dataset).expanduser(), split, config.splits)
        readers = {".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
        columns, records = readers[path.suffix](path)
        return collect(records, columns, config, self, origin=str(path))


def find_file(path: Path, split: str, splits: tuple[str, ...]) -> Path:
    """The file of a split: ``path/split.<suffix>``, or ``path`` itself where one split is asked.

    Raises:
        NotFoundError: saying what is there instead.
    """
    if path.is_file() and path.suffix not in SUFFIXES:
        raise NotFoundError(
            f"cannot read '{path}'",
            expected=f"a file ending in {', '.join(SUFFIXES)}",
            found=f"'{path.suffix}'",
        )
    if path.is_file():
        if len(splits) == 1 or path.stem == split:
            return path
        siblings = [f.stem for f in path.parent.glob(f"*{path.suffix}")]
        raise NotFoundError(
            f"one file cannot hold {len(splits)} splits",
            expected=f"a folder with {', '.join(f'{s}{path.suffix}' for s in splits)}",
            found=str(path),
            hint=f"--dataset {path.parent}"
            if set(splits) <= set(siblings)
            else "put one file per split into a folder, or ask for one: --split train",
        )
    if not path.is_dir():
        raise NotFoundError(
            f"no data set at '{path}'",
            expected="a file, or a folder with train.csv and test.csv",
            found="nothing there",
            where=str(path.absolute()),
        )
    found = [path / f"{split}{suffix}" for suffix in SUFFIXES]
    found = [file for file in found if file.is_file()]
    if len(found) != 1:
        there = sorted(f.name for f in path.iterdir() if f.suffix in SUFFIXES)
        raise NotFoundError(
            f"{'no' if not found else 'more than one'} file for split '{split}'",
            expected=" or ".join(f"{split}{suffix}" for suffix in SUFFIXES),
            found=", ".join(there) or "no data files",
            where=str(path.absolute()),
            hint="name the splits there are with --split",
        )
    return found[0]


def _read_csv(path: Path) -> tuple[list[str], Iterator[Record]]:
    records = _csv_rows(path)
    _, header = next(records, ("", []))
    if len(set(header)) != len(header) or not header:
        raise DataError(
            "the first line is no header",
            expected="distinct column names",
            found=", ".join(header) or "an empty file",
            where=f"{path}, line 1",
        )
    return header, _csv_records(path, header, records)


def _csv_records(
    path: Path, header: list[str], rows: Iterator[tuple[str, list[str]]]
) -> Iterator[Record]:
    for where, row in rows:
        if len(row) != len(header):
            raise DataError(
                "a row has the wrong number of fields",
                expected=f"{len(header)} ({', '.join(header)})",
                found=str(len(row)),
                where=f"{path}, {where}",
                hint="quote fields that hold commas or line breaks",
            )
        yield where, dict(zip(header, row, strict=True))


def _csv_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(MAX_FIELD_CHARS)
    line = 1
    try:
        # utf-8-sig: spreadsheets write a byte-order mark before the first column name
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield f"line {line}", row
                line = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unreadable(path, f"line {line} or after", error) from error


def _read_jsonl(path: Path) -> tuple[list[str], Iterator[Record]]:
    def records() -> Iterator[Record]:
        # split at \n alone: str.splitlines would also cut at U+2028 inside a text
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"line {number}", _json_object(path, number, line)

    first = next(records(), None)
    columns = list(first[1]) if first else []
    return columns, _with_columns(path, records(), columns)


def _json_object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"line {number}", error) from error
    if not isinstance(value, dict):
        raise DataError(
            "a line is no JSON object", found=type(value).__name__, where=f"{path}, line {number}"
        )
    return value


def _with_columns(path: Path, records: Iterator[Record], columns: list[str]) -> Iterator[Record]:
    for where, record in records:
        if not set(columns) <= set(record):
            raise DataError(
                "a line lacks a column that the first line has",
                expected=", ".join(columns),
                found=", ".join(record),
                where=f"{path}, {where}",
            )
        yield where, record


def _read_parquet(path: Path) -> tuple[list[str], Iterator[Record]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(path, "the whole file", error) from error

    def records() -> Iterator[Record]:
        number = 0
        for batch in file.iter_batches():
            for record in batch.to_pylist():
                number += 1
                yield f"row {number}", record

    return list(file.schema_arrow.names), records()


def _unreadable(path: Path, where: str, error: Exception) -> DataError:
    return DataError(
        f"cannot read '{path.name}'",
        expected=f"a UTF-8 {path.suffix} file" if path.suffix != ".parquet" else "a Parquet file",
        found=str(error),
        where=f"{path}, {where}",
    )
