"""Rows that are encoded together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


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
    before: int = 0
    """Rows there before the first of ``inputs``."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def where(self, row: int) -> str:
        """The place of a row of the piece, counted from 0, for messages."""
        return f"{self.origin}, row {self.before + self.start + row + 1}"
