"""JSON lines: one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.messages.checks import excerpt
from gaam_cache.sources._bad_rows import at
from gaam_cache.sources._table import Columns, Record, Table
from gaam_cache.sources.formats._base import Format
from gaam_cache.sources.formats._lines import numbered_lines

ONE_OBJECT_A_LINE = "one JSON object on each line, each line ended by a line feed"


class JsonLinesFormat(Format):
    """One object on each line; the first one names the columns."""

    reads: ClassVar[frozenset[str]] = frozenset({"encoding"})

    def open(self, path: Path, config: ExtractConfig) -> Table:
        """Keys of the first object, and all objects; the others need only what is asked for."""
        objects = _objects(path, config.encoding)
        place, first = next(objects, ("", None))
        if first is None:
            raise DataError(
                "no rows", expected="at least one row", found="an empty file", where=f"{path}"
            )
        if isinstance(first, DataError):  # it is the header, in a way
            raise at(first, f"{path}, {place}")
        records = chain([(place, first)], objects)
        return Table(list(first), lambda columns: _records(records, columns))


def _records(objects: Iterator[Record], columns: Columns) -> Iterator[Record]:
    wanted = columns.all
    for where, record in objects:
        if isinstance(record, DataError) or all(key in record for key in wanted):
            yield where, record
            continue
        yield (
            where,
            DataError(
                "a line lacks a column that the first line has",
                expected=", ".join(key for key in wanted if key not in record),
                found=", ".join(record) or "an empty object",
                hint="write null where a column of several is empty",
            ),
        )


def _objects(path: Path, encoding: str | None) -> Iterator[Record]:
    """What every line holds that is not empty, or why it is none."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    for number, line in numbered_lines(path, newline="\n", encoding=encoding):
        if line.strip():
            yield f"line {number}", _object(decoder, line)


def _object(decoder: json.JSONDecoder, line: str) -> dict[str, Any] | DataError:
    try:
        value = decoder.decode(line)
    except _RepeatedKeyError as error:
        return DataError(
            "a key occurs twice in an object",
            expected="distinct keys",
            found=excerpt(error.key),
            hint="say which of the two values counts by removing the other",
        )
    except (ValueError, RecursionError) as error:
        return DataError("a line is not JSON", expected=ONE_OBJECT_A_LINE, found=_fault(error))
    if isinstance(value, dict):
        return value
    return DataError(
        "a line is no JSON object",
        expected=ONE_OBJECT_A_LINE,
        found=f"{excerpt(value)} ({type(value).__name__})",
        hint="turn an array into lines, for example: jq -c '.[]' array.json > train.jsonl"
        if isinstance(value, list)
        else None,
    )


class _RepeatedKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return value


def _fault(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "arrays or objects nested too deeply"
    if isinstance(error, json.JSONDecodeError):  # its own text speaks of 'line 1'
        return f"{error.msg} at character {error.pos + 1}"
    return str(error)
