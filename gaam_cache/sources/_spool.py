"""Texts on disk rather than in memory: an extraction's memory must not grow with its rows."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

from gaam_cache.errors import StorageError

BUFFER_BYTES = 2**20


class TextSpool(Sequence[str]):
    """A sequence of texts that lie in an unnamed temporary file; eight bytes a text in memory.

    Texts are appended first and read afterwards, by any number of threads.

    Raises:
        StorageError: there is no folder for temporary files, or it is full (``TMPDIR`` names one).
    """

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile(buffering=BUFFER_BYTES)  # noqa: SIM115 lives as we do
        except OSError as error:
            raise _full(error) from error
        self._ends = array("Q", [0])
        self._flushed = False

    def append(self, text: str) -> None:
        """Add a text at the end."""
        content = text.encode()
        self._flushed = False
        try:
            self._file.write(content)
        except OSError as error:
            raise _full(error) from error
        self._ends.append(self._ends[-1] + len(content))

    def __len__(self) -> int:
        """Number of texts."""
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One text, or a list of texts; neighbours come with one read."""
        if isinstance(index, int):
            row = range(len(self))[index]
            return self._read(row, row + 1)[0]
        start, stop, step = index.indices(len(self))
        if step == 1:
            return self._read(start, max(start, stop))
        return [self[row] for row in range(start, stop, step)]

    def __iter__(self) -> Iterator[str]:
        """All texts in order."""
        for start in range(0, len(self), 1024):
            yield from self._read(start, min(start + 1024, len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` holds the same texts in the same order."""
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TextSpool of {len(self)} texts"

    def _read(self, start: int, stop: int) -> list[str]:
        if not self._flushed:
            try:
                self._file.flush()
            except OSError as error:
                raise _full(error) from error
            self._flushed = True
        begin = self._ends[start]
        content = self._pread(begin, self._ends[stop] - begin)
        ends = self._ends[start : stop + 1]
        return [content[first - begin : last - begin].decode() for first, last in pairwise(ends)]

    def _pread(self, offset: int, count: int) -> bytes:
        # one call reads at most 2 GiB
        pieces = []
        while count:
            piece = os.pread(self._file.fileno(), count, offset)
            pieces.append(piece)
            offset, count = offset + len(piece), count - len(piece)
        return b"".join(pieces)


def _full(error: OSError) -> StorageError:
    return StorageError(
        "cannot keep the texts in a temporary file",
        found=error.strerror or str(error),
        where=tempfile.tempdir and str(tempfile.tempdir),  # none would do
        hint="make room there, or set TMPDIR to a folder with room",
    )
