"""SHA-256 of whatever is kept: the one place that hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 4 * 2**20
DIGITS = 12
"""Hexadecimal digits that people read of a hash: 48 bits, so that among a million caches two share
them with a probability of 2 in 1,000."""


def short_digest(digest: str) -> str:
    """What tables and messages show of a hash; signatures of reports name caches by it."""
    return digest[:DIGITS]


def digest_of(*parts: bytes | memoryview) -> str:
    """SHA-256 of bytes that lie one behind the other, in hex."""
    return digest_of_stream(parts)


def digest_of_stream(parts: Iterable[bytes | memoryview]) -> str:
    """The same, of parts that are not all in memory at a time."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """What is left of an open file."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return digest_of_stream(chunks(file))


def hash_values(values: Iterable[str]) -> str:
    """SHA-256 over strings in order, each preceded by its length in bytes."""

    def parts() -> Iterator[bytes]:
        for value in values:
            content = value.encode()
            yield len(content).to_bytes(8, "little") + content

    return digest_of_stream(parts())


def hash_rows(inputs: Iterable[bytes], labels: Iterable[str]) -> str:
    """SHA-256 over rows in order, each input and label preceded by its length in bytes.

    The lengths make the hash injective: no two lists of rows share a byte stream.
    """

    def parts() -> Iterator[bytes]:
        known: dict[str, bytes] = {}
        for content, label in zip(inputs, labels, strict=True):
            if (tail := known.get(label)) is None:
                encoded = label.encode("utf-8", "surrogatepass")
                tail = known[label] = len(encoded).to_bytes(8, "little") + encoded
            yield b"".join((len(content).to_bytes(8, "little"), content, tail))

    return digest_of_stream(parts())
