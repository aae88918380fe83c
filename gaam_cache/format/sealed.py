"""Files that say themselves when they are damaged.

Whatever this project writes carries a digest of all its content, or is named with one in a file
that does. Three forms: JSON that holds its own digest (``sealed_text``), anything else behind a
digest of its name and content (``seal_parts``), or plain bytes that a sealed file names with size
and SHA-256.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

from gaam_cache.format.digest import chunks, digest_of, digest_of_stream
from gaam_cache.format.files import Parts, canonical_json, open_regular

SEAL = "sha256_of_this"
"""The key of a JSON object under which its own digest lies."""
SEALED_MAGIC = b"gaam-sealed-1\n"
_DIGEST_BYTES = 32
PIECE_BYTES = 2**20
"""Of a sealed file that are checked whenever one of them is read."""


def sealed_text(content: dict[str, Any]) -> str:
    """The text of a JSON file that holds the SHA-256 of the rest of its content."""
    sealed = content | {SEAL: digest_of(canonical_json(content))}
    return json.dumps(sealed, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """What ``sealed_text`` was given, from the parsed file.

    Raises:
        ValueError: no digest, or not that of the content.
    """
    rest = {key: value for key, value in content.items() if key != SEAL}
    if SEAL not in content:
        raise ValueError(f"no '{SEAL}'")
    if content[SEAL] != digest_of(canonical_json(rest)):
        raise ValueError(f"its content is not what '{SEAL}' says: it was changed")
    return rest


def seal_parts(name: str, parts: Parts) -> Parts:
    """Bytes of a file that carries a digest of its name and content, not joined.

    The name is in it so that two files that were swapped are seen to be.
    """
    return [_seal(name, parts), *parts]


class SealedParts:
    """The same of parts that are made anew whenever they are asked for: no file is too large.

    Args:
        name: of the file.
        parts: called for each pass; there are two.
    """

    def __init__(self, name: str, parts: Callable[[], Iterable[bytes | memoryview]]) -> None:
        self._name = name
        self._parts = parts

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield _seal(self._name, self._parts())
        yield from self._parts()


def _seal(name: str, parts: Iterable[bytes | memoryview]) -> bytes:
    digest = digest_of_stream(chain([name.encode(), b"\0"], parts))
    return SEALED_MAGIC + bytes.fromhex(digest)


def open_sealed(path: Path) -> BufferedReader:
    """A file that ``seal_parts`` made, read once to check it, at the beginning of its content.

    Raises:
        OSError: it cannot be read.
        ValueError: not a regular file, or not what was written under that name.
    """
    file = open_regular(path)
    try:
        found = file.read(len(SEALED_MAGIC) + _DIGEST_BYTES)
        if found != _seal(path.name, chunks(file)):
            raise ValueError(f"{path.name} is not what was written under that name")
        file.seek(len(found))
    except BaseException:
        file.close()
        raise
    return file


class SealedFile:
    """A file that was sealed, read piece by piece for as long as it is open.

    All of it is read once to check the seal. What is read later must still be what it was then:
    nobody can change it in between without being seen.

    Raises:
        OSError: it cannot be read.
        ValueError: not a regular file, or not what was written under that name.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._file = open_regular(path)
        self._digests: list[str] = []
        try:
            seal = self._file.read(len(SEALED_MAGIC) + _DIGEST_BYTES)
            self._start = len(seal)
            if seal != _seal(path.name, self._pieces()):
                raise ValueError(f"{path.name} is not what was written under that name")
        except BaseException:
            self._file.close()
            raise

    def _pieces(self) -> Iterator[bytes]:
        while piece := self._file.read(PIECE_BYTES):
            self._digests.append(digest_of(piece))
            yield piece

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes of the content.

        Raises:
            OSError: it cannot be read.
            ValueError: it was changed since the seal was checked.
        """
        first, last = offset // PIECE_BYTES, -(-(offset + count) // PIECE_BYTES)
        found = []
        for number in range(first, last):
            at = self._start + number * PIECE_BYTES
            piece = os.pread(self._file.fileno(), PIECE_BYTES, at)
            if digest_of(piece) != self._digests[number]:
                raise ValueError(f"{self._name} was changed while it was read")
            found.append(piece)
        begin = offset - first * PIECE_BYTES
        return b"".join(found)[begin : begin + count]
