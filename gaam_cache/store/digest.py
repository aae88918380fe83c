"""SHA-256 of whatever is kept, and JSON that holds the digest of its own content.

Whatever this project writes carries a digest of all its content, or is named with size and SHA-256
in a file that does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DIGITS = 12
"""Hexadecimal digits that people read of a hash: 48 bits, so that among a million caches two share
them with a probability of 2 in 1,000."""
SEAL = "sha256_of_this"  # the key of a JSON object under which its own digest lies
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_digest(digest: str) -> str:
    """What tables and messages show of a hash; signatures of reports name caches by it."""
    return digest[:DIGITS]


def digest_of(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_parts(parts: Iterable[bytes]) -> str:
    """SHA-256 over parts in order, each preceded by its length in bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, without white space, in ASCII: the same bytes for the same value."""
    return _CANONICAL.encode(value).encode()


def sealed_text(content: dict[str, Any]) -> str:
    """The text of a JSON file that holds the SHA-256 of the rest of its content."""
    sealed = content | {SEAL: digest_of(canonical_json(content))}
    return json.dumps(sealed, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """What ``sealed_text`` was given, from the parsed file; ValueError where it is another."""
    if SEAL not in content:
        raise ValueError(f"no '{SEAL}'")
    rest = {key: value for key, value in content.items() if key != SEAL}
    if content[SEAL] != digest_of(canonical_json(rest)):
        raise ValueError(f"its content is not what '{SEAL}' says: it was changed")
    return rest
