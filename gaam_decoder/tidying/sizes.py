"""Sizes for people."""

from __future__ import annotations

UNITS = ("bytes", "kB", "MB", "GB", "TB")


def megabytes(count: int) -> str:
    """Such as ``1.23 MB``: three digits."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}" if value < 1000 else f"{value:,.0f} {UNITS[unit]}"
