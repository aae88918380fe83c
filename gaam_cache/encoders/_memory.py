"""Finds the longest row that fits into the memory of this machine.

Only a CPU needs this. A GPU reports that its memory is too small, while the operating
system ends a process without a word.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SAFE_LENGTH = 2048
"""Positions of a row that needs no trial: batches on a CPU have as many."""
MARGIN = 1.2
"""Safety factor of the bytes that two measurements predict."""
STEP = 64
"""Positions between two lengths that are compared with the free memory."""
SECONDS_BETWEEN_LOOKS = 0.005


def find_fitting_length(
    run: Callable[[int], None], longest: int, free_bytes: Callable[[], int]
) -> int:
    """The longest row that fits, up to ``longest``.

    No row runs whose predicted memory is not free.

    Args:
        run: runs the model on a row of so many positions.
        longest: positions of the longest row that is wanted.
        free_bytes: returns the free memory.
    """
    bytes_by_length: dict[int, int] = {}
    length = min(SAFE_LENGTH, longest)
    while True:
        bytes_by_length[length] = _measure_peak(run, length)
        if length == longest:
            return longest

        # Double the length as long as the prediction allows it.
        next_length = min(2 * length, longest)
        free = free_bytes()
        if predict_bytes(bytes_by_length, next_length) > free:
            fitting_lengths = [
                candidate
                for candidate in range(length, next_length, STEP)
                if predict_bytes(bytes_by_length, candidate) <= free
            ]
            return max(fitting_lengths, default=length)
        length = next_length


def predict_bytes(bytes_by_length: dict[int, int], length: int) -> float:
    """Bytes that a row will take.

    Two measurements give the curve ``a n + b n^2`` through both, with ``a`` and ``b``
    not negative. A single measurement gives the upper bound, which grows with the
    square.
    """
    *shorter_lengths, last_length = sorted(bytes_by_length)
    bytes_each = bytes_by_length[last_length] / last_length
    if not shorter_lengths:
        return bytes_each * last_length * (length / last_length) ** 2

    previous_length = shorter_lengths[-1]
    previous_bytes_each = bytes_by_length[previous_length] / previous_length
    growth = (bytes_each - previous_bytes_each) / (last_length - previous_length)
    quadratic = min(max(0.0, growth), bytes_each / last_length)
    linear = bytes_each - quadratic * last_length
    return MARGIN * (linear * length + quadratic * length**2)


def _measure_peak(run: Callable[[int], None], length: int) -> int:
    """Bytes that this process takes at most while it runs a row."""
    with _watch_memory() as peaks:
        run(length)
    return peaks[-1]


@contextmanager
def _watch_memory() -> Iterator[list[int]]:
    """While open, update the only entry of a list: bytes taken at most until now."""
    bytes_before = _resident_bytes()
    is_over = threading.Event()
    peaks = [0]

    # A peak leaves no trace afterwards, so that a thread looks while the model runs.
    def look() -> None:
        while not is_over.wait(SECONDS_BETWEEN_LOOKS):
            peaks[0] = max(peaks[0], _resident_bytes() - bytes_before)

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        is_over.set()
        thread.join()


def _resident_bytes() -> int:
    """Bytes of memory that this process holds; 0 if the system does not report them."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
