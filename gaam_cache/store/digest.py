"""SHA-256 of whatever is kept, and files that hold a digest of themselves.

Whatever this project writes carries a digest of all its content, or is named with one in a file
that does: JSON that holds its own digest (``sealed_text``), or plain bytes that such JSON names
with size and SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gaam_cache.store.files import canonical_json

CHUNK_BYTES = 2**20
DIGITS = 12
"""Hexadecimal digits that people read of a hash: 48 bits, so that among a million caches two share
them with a probability of 2 in 1,000."""
SEAL = "sha256_of_this"
"""The key of a JSON object under which its own digest lies."""


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
    return hash_rows((value.encode() for value in values), None)


def hash_rows(inputs: Iterable[bytes], labels: Iterable[str] | None) -> str:
    """SHA-256 over rows in order, each input and label preceded by its length in bytes.

    The lengths make the hash injective: no two lists of rows share a byte stream.
    """

    def parts() -> Iterator[bytes]:
        if labels is None:
            yield from (len(content).to_bytes(8, "little") + content for content in inputs)
            return
        known: dict[str, bytes] = {}
        for content, label in zip(inputs, labels, strict=True):
            if (tail := known.get(label)) is None:
                encoded = label.encode("utf-8", "surrogatepass")
                tail = known[label] = len(encoded).to_bytes(8, "little") + encoded
            yield b"".join((len(content).to_bytes(8, "little"), content, tail))

    return digest_of_stream(parts())


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
