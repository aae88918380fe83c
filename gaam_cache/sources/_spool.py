"""Texts on disk rather than in memory: an extraction's memory must not grow with its rows."""

from __future__ import annotations

import os
import tempfile
import weakref
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import StorageError

BUFFER_BYTES = 2**20


class PackedTexts(Sequence[str]):
    """Texts that lie in a file one behind the other; eight bytes a text in memory.

    Any number of threads may read them.

    Args:
        ends: where each text ends in the file; before them where the first begins.
    """

    def __init__(self, ends: array[int]) -> None:
        self._ends = ends

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
        return f"{type(self).__name__} of {len(self)} texts"

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of every text in UTF-8."""
        ends = np.frombuffer(self._ends, np.uint64).astype(np.int64)
        return ends[1:] - ends[:-1]

    def raw(self) -> Iterator[bytes]:
        """All texts one behind the other, in pieces."""
        for start in range(self._ends[0], self._ends[-1], BUFFER_BYTES):
            self._ready()
            yield self._pread(start, min(BUFFER_BYTES, self._ends[-1] - start))

    def _read(self, start: int, stop: int) -> list[str]:
        self._ready()
        begin = self._ends[start]
        content = self._pread(begin, self._ends[stop] - begin)
        ends = self._ends[start : stop + 1]
        return [content[first - begin : last - begin].decode() for first, last in pairwise(ends)]

    @abstractmethod
    def _pread(self, offset: int, count: int) -> bytes:
        """Bytes of the file."""

    def _ready(self) -> None:
        """Before anything is read."""


class ByteSpool:
    """Pieces of an unnamed temporary file; any number of threads may read them, one appends.

    Raises:
        StorageError: there is no folder for temporary files, or it is full (``TMPDIR`` names one).
    """

    def __init__(self) -> None:
        self._file = _temporary_file(self, buffering=0)
        self.size = 0
        """In bytes."""

    def append(self, content: bytes) -> int:
        """Add a piece at the end; where it begins."""
        begin, rest = self.size, memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise _full(error) from error
        self.size += len(content)
        return begin

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes."""
        return _pread(self._file.fileno(), offset, count)


class TextSpool(PackedTexts):
    """A sequence of texts that lie in an unnamed temporary file.

    Texts are appended first and read afterwards.

    Raises:
        StorageError: there is no folder for temporary files, or it is full (``TMPDIR`` names one).
    """

    def __init__(self) -> None:
        super().__init__(array("Q", [0]))
        self._file = _temporary_file(self, buffering=BUFFER_BYTES)
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

    def _pread(self, offset: int, count: int) -> bytes:
        return _pread(self._file.fileno(), offset, count)

    def _ready(self) -> None:
        if not self._flushed:
            try:
                self._file.flush()
            except OSError as error:
                raise _full(error) from error
            self._flushed = True


def spooled(texts: Iterable[str]) -> TextSpool:
    """A spool of these texts."""
    spool = TextSpool()
    for text in texts:
        spool.append(text)
    return spool


def packed(texts: Sequence[str]) -> PackedTexts:
    """The same texts, packed."""
    return texts if isinstance(texts, PackedTexts) else spooled(texts)


def _temporary_file(owner: object, *, buffering: int) -> Any:
    """A file that is closed when nobody has ``owner`` any more, or at the end of the process."""
    try:
        file = tempfile.TemporaryFile(buffering=buffering)  # noqa: SIM115 it outlives this
    except OSError as error:
        raise _full(error) from error
    weakref.finalize(owner, _close, file)
    return file


def _close(file: Any) -> None:
    with suppress(OSError):  # on a full disk: what was not written nobody has read
        file.close()


def _pread(descriptor: int, offset: int, count: int) -> bytes:
    # one call reads at most 2 GiB
    pieces = []
    while count:
        piece = os.pread(descriptor, count, offset)
        if not piece:
            raise _cut_off()
        pieces.append(piece)
        offset, count = offset + len(piece), count - len(piece)
    return b"".join(pieces)


def _full(error: OSError) -> StorageError:
    return StorageError(
        "cannot keep the rows in a temporary file",
        found=error.strerror or str(error),
        where=tempfile.tempdir and str(tempfile.tempdir),  # none would do
        hint="make room there, or set TMPDIR to a folder with room",
    )


def _cut_off() -> StorageError:
    return StorageError(
        "the file of the rows became shorter while it was read",
        hint="run the same again when nobody else writes there",
    )
