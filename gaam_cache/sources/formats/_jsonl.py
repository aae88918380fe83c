"""The objects of a file of JSON lines, one after another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._bad_rows import at
from gaam_cache.sources.formats._lines import numbered_lines

ONE_OBJECT_A_LINE = "one JSON object on each line, each line ended by a line feed"


def read_objects(
    path: Path,
    encoding: str | None,
    *,
    number: Callable[[str], Any] | None = None,
    skipped: Callable[[int], None] = lambda lines: None,  # noqa: ARG005
) -> Iterator[tuple[str, str, dict[str, Any] | DataError]]:
    """Of every line that is not empty where it stands, the line, and its object or why it is none.

    Args:
        path: the file.
        encoding: of its characters; None means UTF-8.
        number: what becomes of every number, NaN and infinities too; default: int and float.
        skipped: told in front of an object how many blank lines before it are none.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=None if number is None else lambda text: number(_not_too_long(text)),
        parse_float=number,
        parse_constant=number,
    )
    blank = 0
    for place, line in numbered_lines(path, newline="\n", encoding=encoding):
        if not line.strip():
            blank += 1
        else:
            if blank:
                skipped(blank)
                blank = 0
            yield f"line {place}", line, _object(decoder, line)


def first_object(
    path: Path, objects: Iterator[tuple[str, str, dict[str, Any] | DataError]]
) -> tuple[str, str, dict[str, Any]]:
    """The first of them, which names the columns.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    place, line, first = next(objects, ("", "", None))
    if first is None:
        raise DataError(
            "no rows", expected="at least one row", found="an empty file", where=f"{path}"
        )
    if isinstance(first, DataError):  # it is the header, in a way
        raise at(first, f"{path}, {place}")
    return place, line, first


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
    except (json.JSONDecodeError, RecursionError) as error:
        return DataError("a line is not JSON", expected=ONE_OBJECT_A_LINE, found=_fault(error))
    except ValueError:  # what Python says is advice to whoever programs
        return DataError(
            "a whole number is too long",
            expected=f"at most {sys.get_int_max_str_digits():,} digits",
            found="more of them in a row",
            hint="write it as a string, in quotes",
        )
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


def _not_too_long(text: str) -> str:
    """Digits that Python would make a number of, so that all who read a line say the same of it."""
    most = sys.get_int_max_str_digits()  # 0 means any
    if most and len(text.lstrip("-")) > most:
        raise ValueError
    return text


def _fault(error: json.JSONDecodeError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "arrays or objects nested too deeply"
    return f"{error.msg} at character {error.pos + 1}"  # its own text speaks of 'line 1'
