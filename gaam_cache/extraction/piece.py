"""Rows that are encoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows, and where each of them stands: those of a file need not follow one another."""

    rows: Sequence[str]
    places: Sequence[str]
    """As in 'line 7', one of every row."""

    @classmethod
    def of(cls, rows: Sequence[str] | Placed, first_row: int) -> Self | Placed:
        """As they are placed, else by their number from 1, the first of which is the next one."""
        if isinstance(rows, Placed):
            return rows
        return cls(rows, [f"row {first_row + place + 1}" for place in range(len(rows))])

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are encoded together: those of a shard, or of a call."""

    inputs: Sequence[Any]
    """All there are, of which those from ``start`` to ``stop`` (exclusive) are meant; they may lie
    on a disk."""
    start: int
    stop: int
    origin: str
    """Where they are from, for messages."""
    places: Sequence[str] = ()
    """Where each of ``inputs`` stands there; empty: by their numbers."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def where(self, *rows: int) -> str:
        """The place of a row of the piece, counted from 0, or of a first and a last one."""
        found = [self.start + row for row in rows]
        places = [self.places[row] if self.places else f"row {row + 1}" for row in found]
        return f"{self.origin}, {' to '.join(places)}"
