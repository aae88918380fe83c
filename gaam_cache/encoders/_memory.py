"""Finds the longest row that fits into the memory of this machine.

Only a CPU needs this. If the memory of a GPU is too small, an error says so; on a CPU
the operating system kills the process without a message.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SAFE_LENGTH = 2048
"""Positions of a row that runs without a check: batches on a CPU have as many."""
SAFETY_FACTOR = 1.2
"""Factor on the bytes that two measurements predict."""
LENGTH_STEP = 64
"""Positions between two lengths whose predicted bytes are compared with free memory."""
SECONDS_BETWEEN_LOOKS = 0.005
"""Time between two looks at the memory of this process."""


def find_fitting_length(
    run: Callable[[int], None], longest: int, free_bytes: Callable[[], int]
) -> int:
    """Find how many positions a row may have; at most ``longest``.

    Rows of growing length run while their memory is measured. A row runs only if the
    memory that is predicted for it is free.

    Args:
        run: runs the model on a row; it takes the number of positions of the row.
        longest: positions of the longest row that the caller needs.
        free_bytes: returns the bytes of free memory.

    Returns:
        ``longest`` if such a row fits. Otherwise the greatest length, in steps of
        ``LENGTH_STEP``, that is predicted to fit.
    """
    bytes_by_length: dict[int, int] = {}
    length = min(SAFE_LENGTH, longest)
    while True:
        bytes_by_length[length] = _measure_peak(run, length)
        if length == longest:
            return longest

        # Double the length as long as the prediction allows it.
        next_length = min(2 * length, longest)
        # If the next row would not fit, the longest one that fits lies between the two
        # lengths. It is predicted too, and not run.
        free = free_bytes()
        if predict_bytes(bytes_by_length, next_length) > free:
            fitting_lengths = [
                candidate
                for candidate in range(length, next_length, LENGTH_STEP)
                if predict_bytes(bytes_by_length, candidate) <= free
            ]
            return max(fitting_lengths, default=length)
        length = next_length


def predict_bytes(bytes_by_length: dict[int, int], length: int) -> float:
    """Predict how many bytes a row of ``length`` positions takes.

    Attention takes memory that grows with the square of the length n, and the rest of a
    model takes memory that grows with n. So the prediction is ``a n + b n^2``, where
    the curve goes through the two longest measured rows, and neither a nor b is
    negative, times a factor for safety. If only one row was measured, all of its memory
    counts as growing with the square, which is an upper bound.

    Args:
        bytes_by_length: positions of a row -> bytes that it was measured to take; at
            least one row.
        length: positions of the row.
    """
    *shorter_lengths, last_length = sorted(bytes_by_length)
    bytes_per_position = bytes_by_length[last_length] / last_length
    if not shorter_lengths:
        return bytes_per_position * last_length * (length / last_length) ** 2

    # The bytes for each position are a + b n: a straight line through two points.
    previous_length = shorter_lengths[-1]
    previous_bytes_per_position = bytes_by_length[previous_length] / previous_length
    growth = (bytes_per_position - previous_bytes_per_position) / (
        last_length - previous_length
    )
    # This range of b keeps a and b from being negative.
    quadratic = min(max(0.0, growth), bytes_per_position / last_length)
    linear = bytes_per_position - quadratic * last_length
    return SAFETY_FACTOR * (linear * length + quadratic * length**2)


def _measure_peak(run: Callable[[int], None], length: int) -> int:
    """Run a row of ``length`` positions, and measure the most bytes that it takes."""
    with _watch_memory() as growth:
        run(length)
    return growth.peak_bytes


@dataclass(slots=True)
class _MemoryGrowth:
    """How much more memory this process holds than when the measurement began."""

    peak_bytes: int = 0  # the most so far


@contextmanager
def _watch_memory() -> Iterator[_MemoryGrowth]:
    """While open, measure how far the memory of this process grows at most.

    Yields:
        The growth since the context was opened, which a thread keeps up to date.
    """
    bytes_before = _resident_bytes()
    is_over = threading.Event()
    growth = _MemoryGrowth()

    # A peak cannot be read afterwards, so that a thread looks while the model runs.
    def look() -> None:
        while not is_over.wait(SECONDS_BETWEEN_LOOKS):
            growth_now = _resident_bytes() - bytes_before
            growth.peak_bytes = max(growth.peak_bytes, growth_now)

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield growth
    finally:
        is_over.set()
        thread.join()


def _resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 if the system does not report them."""
    with suppress(OSError, ValueError, IndexError):
        # The second number of this file counts the pages that lie in memory.
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
