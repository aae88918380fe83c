"""Names of the splits of a cache, read off its plan while one types: NumPy is not imported.

``read_plan`` is what holds; what it would refuse offers nothing here.
"""

from __future__ import annotations

import json
from pathlib import Path

from gaam_cache.config import NAME_PATTERN

PLAN_FILE = "cache.json"
"""As ``gaam_cache.format.plan`` has it, which imports NumPy."""
LARGEST = 2**24
"""Bytes of a plan that is read for this: one of 1,000 classes has 20 kB."""


def names(folder: str | None) -> list[str]:
    """Splits of the cache in a folder, in its order; none where none can be read."""
    if not folder:
        return []
    try:
        path = Path(folder).expanduser() / PLAN_FILE
        if not path.is_file() or path.stat().st_size > LARGEST:
            return []
        rows = json.loads(path.read_bytes())["rows"]
        return [name for name in rows if isinstance(name, str) and NAME_PATTERN.fullmatch(name)]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError):
        return []
