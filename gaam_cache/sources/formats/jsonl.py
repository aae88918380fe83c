"""JSON lines: one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from gaam_cache.errors import DataError
from gaam_cache.messages.checks import excerpt
from gaam_cache.sources._table import Record
from gaam_cache.sources.formats._base import Format
from gaam_cache.sources.formats._lines import numbered_lines

ONE_OBJECT_A_LINE = "one JSON object on each line, each line ended by a line feed"


class JsonLinesFormat(Format):
    """One object on each line; the first one names the columns."""

    def read(
        self, path: Path, columns: Sequence[str], label_column: str
    ) -> tuple[list[str], Iterator[Record]]:
        """Keys of the first object, and all objects; the others need only what is asked for."""
        objects = _objects(path)
        first = next(objects, None)
        if first is None:
            raise DataError(
                "no rows", expected="at least one row", found="an empty file", where=f"{path}"
            )
        return list(first[1]), _records(path, chain([first], objects), (*columns, label_column))


def _records(
    path: Path, objects: Iterator[tuple[int, dict[str, Any]]], wanted: Sequence[str]
) -> Iterator[Record]:
    for number, record in objects:
        missing = [key for key in wanted if key not in record]
        if missing:
            raise DataError(
                "a line lacks a column that the first line has",
                expected=", ".join(missing),
                found=", ".join(record) or "an empty object",
                where=f"{path}, line {number}",
                hint="write null where a column of several is empty",
            )
        yield f"line {number}", record


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    for number, line in numbered_lines(path, newline="\n"):
        if not line.strip():
            continue
        try:
            value = decoder.decode(line)
        except _RepeatedKeyError as error:
            raise DataError(
                "a key occurs twice in an object",
                expected="distinct keys",
                found=excerpt(error.key),
                where=f"{path}, line {number}",
                hint="say which of the two values counts by removing the other",
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(
                "a line is not JSON",
                expected=ONE_OBJECT_A_LINE,
                found=_fault(error),
                where=f"{path}, line {number}",
            ) from error
        if not isinstance(value, dict):
            raise DataError(
                "a line is no JSON object",
                expected=ONE_OBJECT_A_LINE,
                found=f"{excerpt(value)} ({type(value).__name__})",
                where=f"{path}, line {number}",
                hint="turn an array into lines, for example: jq -c '.[]' array.json > train.jsonl"
                if isinstance(value, list)
                else None,
            )
        yield number, value


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
