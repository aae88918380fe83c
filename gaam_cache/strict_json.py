"""JSON files from a folder that anyone may have written to: bounded, regular, unambiguous."""

from __future__ import annotations

import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

MAX_BYTES = 16 * 2**20
"""A plan names every class twice; no honest one comes near this."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading: no symbolic link is followed, no pipe waited for.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a regular file.
    """
    if path.is_symlink():
        raise ValueError(f"{path.name} is a symbolic link")
    # the flags hold even where the file is swapped after the check above
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path.name} is not a regular file")
    return file


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
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"{path.name} has {size:,} bytes, at most {max_bytes:,} make sense")
        text = file.read(max_bytes).decode("utf-8")
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is there twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
