"""What folders take on disk."""

from __future__ import annotations

import os
from pathlib import Path

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def in_words(count: int) -> str:
    """For people: such as ``1.23 MB``: three digits."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}" if value < 1000 else f"{value:,.0f} {UNITS[unit]}"


def bytes_of(folder: Path) -> int:
    """Of all files below a folder; no link is followed, and what is gone meanwhile is nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_size
            except OSError:
                continue
    return total
