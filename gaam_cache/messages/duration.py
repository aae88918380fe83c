"""Times for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Two units at most: '1 h 20 min'."""
    whole = max(0, round(seconds))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"
