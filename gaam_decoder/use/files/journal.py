r"""What has been predicted of a file so far, on disk, piece by piece.

A line per record, ``SHA-256 of the JSON, a space, JSON, \n``: first what is being done, then one
for every piece of rows, in any order; of several for one piece the last counts. What cannot be read
at the end, as after a kill, is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.errors import ConfigError
from gaam_cache.format.digest import digest_of
from gaam_cache.format.files import canonical_json, open_regular, write_file
from gaam_cache.format.fingerprint import differences
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.strict_json import parse_object

_SHOWN = 8
"""Differences, of many."""


class Record(NamedTuple):
    """Results of a piece of rows, K of every row; None where nothing was to be encoded."""

    rows: int
    sha256: str
    """Of the rows as they were read."""
    classes: list[list[int] | None]
    """Numbers of the likeliest classes, the first of which is predicted."""
    probabilities: list[list[float] | None]
    agreement: list[float | None]


class Journal:
    """The records of one file.

    Args:
        path: of the journal; made if it is not there, or holds nothing that can be read.
        recipe: what is being done: JSON values.
        anew: drop what is there if it is of something else.

    Raises:
        ConfigError: the journal is that of something else.
        StorageError: the file system refused.
    """

    def __init__(self, path: Path, recipe: dict[str, Any], *, anew: bool = False) -> None:
        self._path = path
        self._places: dict[int, int] = {}
        self.rows = 0
        """How many are predicted."""
        with storage_errors(path):
            end = 0
            for start, behind, content in _records(path):
                if start == 0 and content != recipe:
                    if not anew:
                        raise _of_something_else(path, content, recipe)
                    break
                if "chunk" in content:
                    self._note(start, content)
                end = behind
            if not end:
                write_file(path, _line(recipe))
                end = path.stat().st_size
            self._file = path.open("r+b", buffering=0)
            self._file.truncate(end)

    def _note(self, start: int, content: dict[str, Any]) -> None:
        if content["chunk"] not in self._places:
            self.rows += content["rows"]
        self._places[content["chunk"]] = start

    def get(self, chunk: int) -> Record | None:
        """What is known of a piece; None if nothing."""
        if chunk not in self._places:
            return None
        with storage_errors(self._path):
            self._file.seek(self._places[chunk])
            content = _content(self._file.readline())
        return None if content is None else Record(*(content[n] for n in Record._fields))

    def add(self, chunk: int, record: Record) -> None:
        """Keep the results of a piece; afterwards no power cut loses them."""
        content = {"chunk": chunk, **record._asdict()}
        self._note(self._append(content), content)

    def finish(self, sha256: str) -> None:
        """Take note of what the finished file is, before it is there."""
        self._append({"result": sha256})

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def _append(self, content: dict[str, Any]) -> int:
        with storage_errors(self._path):
            start = self._file.seek(0, os.SEEK_END)
            rest = memoryview(_line(content))
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except BaseException:
                self._file.truncate(start)  # no half a record, of a full disk either
                raise
        return start


def kept_rows(path: Path) -> int:
    """How many rows a journal has the results of; 0 where there is none."""
    rows: dict[int, int] = {}
    with suppress(OSError):
        for _, _, content in _records(path):
            if "chunk" in content:
                rows[content["chunk"]] = content["rows"]
    return sum(rows.values())


def result_of(path: Path) -> str | None:
    """SHA-256 of the finished file, where a journal has got so far."""
    found = None
    with suppress(OSError):
        for _, _, content in _records(path):
            found = content.get("result")
    return found


def _records(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Where every record begins and ends, and what it says, as far as they can be read."""
    start = 0
    try:
        file = open_regular(path)
    except (FileNotFoundError, ValueError):
        return
    with file:
        while line := file.readline():
            content = _content(line)
            if content is None:
                return
            yield start, start + len(line), content
            start += len(line)


def _line(content: dict[str, Any]) -> bytes:
    text = canonical_json(content)
    return f"{digest_of(text)} ".encode() + text + b"\n"


def _content(line: bytes) -> dict[str, Any] | None:
    digest, _, text = line[:-1].partition(b" ")
    if line[-1:] != b"\n" or digest_of(text).encode() != digest:
        return None
    return parse_object(text, "a record")


def _of_something_else(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> ConfigError:
    pairs = differences(ours, theirs)
    lines = [f"{name}: {now} now, {then} there" for name, now, then in pairs[:_SHOWN]]
    if len(pairs) > _SHOWN:
        lines.append(f"and {len(pairs) - _SHOWN:,} more")
    return ConfigError(
        f"'{path.parent.name}' was begun by another prediction",
        expected="the same run, options and columns, to go on with it",
        found="\n".join(lines),
        where=str(path.parent.absolute()),
        hint="choose another --out, or begin anew with --overwrite",
    )
