"""Numbers as people read them."""

from __future__ import annotations


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.1f}"


def points(value: float, digits: int = 2) -> str:
    """A difference in percentage points, with its sign."""
    return f"{round(100 * value, digits) + 0.0:+.{digits}f}"  # + 0.0: never '-0.00'


def span(interval: tuple[float, float] | None, *, signed: bool = False) -> str:
    """An interval in percent, or in points with signs, to two digits of its half width."""
    if interval is None:
        return "-"
    half = 50 * (interval[1] - interval[0])
    digits = 0 if half >= 10 else 1 if half >= 1 else 2
    if signed:
        return " to ".join(points(bound, digits) for bound in interval)
    return " to ".join(f"{100 * bound:.{min(digits, 1)}f}" for bound in interval)


def p_value(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"
