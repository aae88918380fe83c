"""Rows of a table and what is said of them, a piece at a time."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from gaam_cache.encode import Placed
from gaam_cache.errors import DataError, GaamWarning
from gaam_cache.tables.cached import CachedTable
from gaam_cache.tables.chunk import Chunk
from gaam_cache.tables.table import Table
from gaam_decoder.use.files.journal import Journal, Record
from gaam_decoder.use.files.results import Results
from gaam_decoder.use.predictor import Predictor


class Piece(NamedTuple):
    """A piece of a table."""

    number: int
    """From 0."""
    first_row: int
    """Number of its first row, from 0."""
    chunk: Chunk

    @property
    def end(self) -> int:
        """Rows up to its last one."""
        return self.first_row + len(self.chunk)


def pieces_of(table: Table) -> Iterator[Piece]:
    """All pieces in order."""
    first_row = 0
    for number, chunk in enumerate(table.chunks()):
        yield Piece(number, first_row, chunk)
        first_row += len(chunk)


def predicted(
    predictor: Predictor, table: Table, pieces: Iterable[Piece], results: Results
) -> Iterator[tuple[Piece, Record]]:
    """What is said of every piece; without any, no encoder is loaded.

    Args:
        predictor: a run.
        table: that the pieces are of.
        pieces: in order.
        results: what is kept.
    """
    left = iter(pieces)
    first = next(left, None)
    if first is None:
        return
    every = chain([first], left)
    if isinstance(table, CachedTable):
        states = table.split.pooled(predictor.pooling)
        for piece in every:
            found = predictor.predict_states(states[piece.first_row : piece.end])
            yield piece, results.record(found, [True] * len(piece.chunk), piece.chunk.digest)
        return
    waiting: deque[Piece] = deque()

    def rows() -> Iterator[Placed]:
        for piece in every:
            waiting.append(piece)
            pairs = zip(piece.chunk.inputs, piece.chunk.places, strict=True)
            used = [(one, place) for one, place in pairs if isinstance(one, str)]
            yield Placed([one for one, _ in used], [place for _, place in used])

    for found in predictor.stream(rows(), origin=str(table.path)):
        piece = waiting.popleft()
        used = [one is not None for one in piece.chunk.inputs]
        yield piece, results.record(found, used, piece.chunk.digest)


class Kept:
    """What a journal knows of a table.

    Args:
        journal: of it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.known = 0
        """Rows whose results were there already."""
        self._changed = 0

    def missing(self, table: Table) -> Iterator[Piece]:
        """The pieces that are to be predicted; rows that have changed since are among them."""
        for piece in pieces_of(table):
            record = self._journal.get(piece.number)
            if record is None:
                yield piece
            elif _is_of(record, piece.chunk):
                self.known += len(piece.chunk)
            else:
                self._changed += record.rows
                yield piece

    def add(self, piece: Piece, record: Record) -> None:
        """Keep results."""
        self._journal.add(piece.number, record)

    def say_changed(self) -> None:
        """Warn of what was predicted before, and has changed since."""
        if self._changed:
            warnings.warn(
                f"rows have changed since they were predicted: {self._changed:,} were predicted "
                "again",
                GaamWarning,
                stacklevel=2,
            )

    def all(self, table: Table) -> Iterator[tuple[Piece, Record]]:
        """Everything, once nothing is missing.

        Raises:
            DataError: rows have changed since they were predicted.
        """
        for piece in pieces_of(table):
            record = self._journal.get(piece.number)
            if record is None or not _is_of(record, piece.chunk):
                raise DataError(
                    "rows were changed while they were predicted",
                    expected="a file that nobody writes to",
                    where=f"{table.path}, {piece.chunk.places[0]} to {piece.chunk.places[-1]}",
                    hint="run the same again when whoever writes it is done: what has not changed "
                    "is not predicted again",
                )
            yield piece, record


def _is_of(record: Record, chunk: Chunk) -> bool:
    return record.rows == len(chunk) and record.sha256 == chunk.digest
