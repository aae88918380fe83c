"""A table whose rows are read a piece at a time, as often as is asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from gaam_cache.errors import DataError, StorageError
from gaam_cache.format.files import Identity
from gaam_cache.sources._bad_rows import BadRows, at
from gaam_cache.sources._texts import check_encodable
from gaam_cache.tables.chunk import CHUNK_ROWS, Chunk, check_cell
from gaam_cache.tables.inputs import Inputs
from gaam_cache.terminal import Report, silent

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class Counts(NamedTuple):
    """What a table holds."""

    rows: int
    empty: int
    """Of these, rows of which nothing is to be encoded."""
    blank: int = 0
    """Lines between the rows that are none."""


class Table(ABC):
    """One file.

    Args:
        path: the file.
        inputs: says what of a row is encoded.

    Raises:
        DataError: no table.
        ConfigError: a column is missing.
        StorageError: it cannot be read.
    """

    chunk_rows: ClassVar[int] = CHUNK_ROWS
    format: str
    """The name of its format."""
    names: list[str]
    """Of all columns, as they stand there."""
    delimiter: str = ","
    """What parts fields, in CSV."""
    blank: int = 0
    """Lines that are no rows, before the row that was read last."""

    def __init__(self, path: Path, inputs: Inputs) -> None:
        self.path = path
        self.inputs = inputs
        self._identity = self._now()

    @abstractmethod
    def schema(self) -> pyarrow.Schema:
        """Types of all columns; of JSON lines those that ``check`` has seen."""

    @abstractmethod
    def _read(self) -> Iterator[Chunk]:
        """All rows from the beginning, ``chunk_rows`` at a time."""

    def look(self, chunk: Chunk, to: str) -> None:
        """Take note of what is read, and refuse what format ``to`` does not have.

        Raises:
            DataError: naming the row.
        """
        if to == self.format:
            return
        for _ in chunk.members() if to == "jsonl" else chunk.fields() if to == "csv" else ():
            pass

    def check(self, to: str, report: Report = silent) -> Counts:
        """Read all rows once: what is wrong is said before anything is computed.

        Args:
            to: format in which they are to be written.
            report: told how many rows there are so far.

        Raises:
            DataError: of all rows that cannot be used how many there are, and the first.
        """
        if to != self.format:
            self._check_names(to)
        bad, rows, empty = BadRows(str(self.path)), 0, 0
        for chunk in self._read():
            empty += _note_bad(chunk, bad)
            rows += len(chunk)
            if not bad.count:
                self.look(chunk, to)
            report(rows, 0, f"reading {self.path}")
        bad.refuse(rows)
        self.unchanged()
        return Counts(rows, empty, self.blank)

    def _check_names(self, to: str) -> None:
        """Refuse a name of a column that format ``to`` does not have."""
        for name in self.names:
            where = f"{self.path}, the names of the columns"
            if to == "csv":
                check_cell(name, name, where)
            try:
                check_encodable(name, "name")
            except DataError as error:
                raise at(error, where) from error

    def chunks(self) -> Iterator[Chunk]:
        """All rows from the beginning.

        Raises:
            DataError: a row cannot be used, or the file was changed since it was opened.
        """
        for chunk in self._read():
            bad = BadRows(str(self.path))
            _note_bad(chunk, bad)
            bad.refuse(len(chunk))
            yield chunk
        self.unchanged()

    def _skip(self, lines: int) -> None:
        self.blank += lines

    def _in_chunks(self, rows: Iterator[T], make: Callable[[list[T]], Chunk]) -> Iterator[Chunk]:
        """Pieces of rows that come one by one; ``make`` makes one."""
        while piece := list(islice(rows, self.chunk_rows)):
            yield make(piece)

    def unchanged(self) -> None:
        """Refuse a file that is not what it was.

        Raises:
            DataError: it was changed.
        """
        if self._now() != self._identity:
            raise DataError(
                "the file was changed while it was read",
                expected="a file that nobody writes to",
                where=str(self.path),
                hint="run the same again when whoever writes it is done",
            )

    def _now(self) -> Identity:
        try:
            return Identity.of(os.stat(self.path))  # noqa: PTH116 the same for a Path
        except OSError as error:
            raise StorageError(
                f"cannot read '{self.path.name}'",
                found=error.strerror,
                where=str(self.path.absolute()),
            ) from error


def _note_bad(chunk: Chunk, bad: BadRows) -> int:
    """Take note of rows that cannot be used; how many others have nothing to encode."""
    for place, found in zip(chunk.places, chunk.inputs, strict=True):
        if isinstance(found, DataError):
            bad.add(place, found)
    return sum(found is None for found in chunk.inputs)
