"""Which part of a sound a row is, or into which pieces it is split."""

from __future__ import annotations

from typing import Literal

SHORTEST_TAIL = 0.1
"""Seconds. A shorter rest of a sound that is split is no row: of 25 ms windows that are 20 ms
apart, as speech encoders have them, it holds at most four."""


def parts(
    frames: int, rate: int, seconds: float | None, mode: Literal["cut", "split"]
) -> list[tuple[int, int]]:
    """First sample, and one past the last, of every row; at least one row.

    Piece i lasts from sample round(i * seconds * rate) to round((i + 1) * seconds * rate).

    Args:
        frames: samples of the sound.
        rate: in Hz.
        seconds: of a piece; None: all of it.
        mode: whether pieces after the first are rows.
    """
    if seconds is None:
        return [(0, frames)]
    found: list[tuple[int, int]] = []
    start = i = 0
    while start < frames and (mode == "split" or not found):
        i += 1
        end = max(round(i * seconds * rate), start + 1)
        stop = min(end, frames)
        if not found or stop == end or stop - start >= SHORTEST_TAIL * rate:
            found.append((start, stop))
        start = stop
    return found
