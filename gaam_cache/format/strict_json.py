"""JSON files from a folder that anyone may have written to: bounded, regular, unambiguous."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gaam_cache.format.files import read_bytes

MAX_BYTES = 16 * 2**20
"""A plan names every class twice; no honest one comes near this."""


def read_json(path: Path, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: a regular file in UTF-8.
        max_bytes: a larger file is refused unread.

    Raises:
        OSError: it cannot be opened.
        ValueError: too large, not JSON, not an object, a key twice, NaN or Infinity.
        RecursionError: nested too deeply.
    """
    return parse_object(read_bytes(path, max_bytes=max_bytes), path.name)


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """The object that bytes are; ``name`` says what they are, and errors are those of the file."""
    value = _STRICT.decode(content.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{name} does not hold a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is there twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
