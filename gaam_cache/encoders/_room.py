"""Whether a long row fits into the memory of this machine, tried from a shorter one upwards.

Of a CPU alone: a GPU says when its memory is too small, while a system kills the process.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SURE = 2048
"""Positions of a row that needs no trial: so many make a batch of a CPU."""
MARGIN = 1.2  # of what is expected by two measurements
STEP = 64  # by which the longest row that fits is told
SECONDS = 0.005  # between two looks at the memory


def longest_fitting(
    run: Callable[[int], None], longest: int, free: Callable[[], int]
) -> int:
    """How long a row may be, up to ``longest``; what is not expected to fit is not run.

    Args:
        run: runs the model on a row of so many positions.
        longest: positions of the longest row that is wanted.
        free: bytes of memory that are free.
    """
    taken: dict[int, int] = {}
    length = min(SURE, longest)
    while True:
        with _peak() as most:
            run(length)
        taken[length] = max(most)
        if length == longest:
            return longest
        following = min(2 * length, longest)
        left = free()
        if expected(taken, following) > left:
            steps = range(length, following, STEP)
            return max((n for n in steps if expected(taken, n) <= left), default=length)
        length = following


def expected(taken: dict[int, int], length: int) -> float:
    """Bytes that a row will take: by the last two lengths, or at most, by the square of one.

    Formula: ``a n + b n^2`` through both, ``a`` and ``b`` not negative.
    """
    *before, last = sorted(taken)
    each = taken[last] / last
    if not before:
        return each * last * (length / last) ** 2
    growth = (each - taken[before[-1]] / before[-1]) / (last - before[-1])
    square = min(max(0.0, growth), each / last)
    return MARGIN * ((each - square * last) * length + square * length**2)


@contextmanager
def _peak() -> Iterator[list[int]]:
    """While open, bytes that this process holds more than before, time and again."""
    before, over = _resident(), threading.Event()
    most = [0]

    def look() -> None:
        while not over.wait(SECONDS):
            most[0] = max(most[0], _resident() - before)

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say so."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
