"""What makes two caches the same cache: everything that changes the numbers, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gaam_cache.format.files import canonical_json

CHUNK_BYTES = 4 * 2**20


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def hash_rows(texts: Iterable[str], labels: Iterable[str]) -> str:
    """SHA-256 over rows in order, each text and label preceded by its length in bytes.

    The lengths make the hash injective: no two lists of rows share a byte stream.
    """
    digest = hashlib.sha256()
    for text, label in zip(texts, labels, strict=True):
        for part in (text.encode("utf-8", "surrogatepass"), label.encode("utf-8", "surrogatepass")):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def fingerprint(fields: dict[str, Any]) -> str:
    """SHA-256 of the fields as canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(fields)).hexdigest()


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Fields that differ, as (dotted name, ours, theirs); absent values are ``-``."""
    flat_ours, flat_theirs = _flatten(ours), _flatten(theirs)
    keys = sorted(flat_ours.keys() | flat_theirs.keys())
    pairs = [(key, flat_ours.get(key, "-"), flat_theirs.get(key, "-")) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _flatten(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flatten(inner, f"{name}.{key}" if name else key)
        return flat
    return {name: value if isinstance(value, str) else json.dumps(value)}
