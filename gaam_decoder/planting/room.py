"""What planting takes: memory at once, and bytes on disk; refused before anything is drawn.

N rows, L layers, D hidden size, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gaam_cache.devices import out_of_memory
from gaam_cache.errors import GaamError, ShortOfMemoryError
from gaam_decoder.planting.states import BLOCK_ROWS
from gaam_decoder.training.rows.free_memory import free_memory

BYTES_OF_A_NUMBER = 80
"""Of the states of a block at once: float32 as drawn, float64, and what a gate makes of them.
Measured on blocks of 512 x 16 x 512 and more: 22 (none) to 79 (two-peaks) beyond what was there."""
COPIES = 4
"""Of what is float64 per class: weights of the head, probabilities of all rows."""


@contextmanager
def room_to_plant(
    rows: int, num_layers: int, hidden_size: int, classes: int, *, given: bool
) -> Iterator[None]:
    """Refuse more than there is memory for, before and while it is taken.

    Args:
        rows: N, in all.
        num_layers: L.
        hidden_size: D.
        classes: C.
        given: whether the states are those of a cache.

    Raises:
        ShortOfMemoryError: naming the bytes, and what to lower.
    """
    width = num_layers * hidden_size
    needed = BLOCK_ROWS * width * BYTES_OF_A_NUMBER + 8 * COPIES * classes * (width + rows)
    if needed > (free := free_memory()):
        raise _short(needed, f"{gigabytes(free)} are free", given)
    try:
        yield
    except GaamError:
        raise
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise _short(needed, " ".join(str(error).split())[:200], given) from error


def _short(needed: int, found: str, given: bool) -> ShortOfMemoryError:
    lower = (
        "classes, --rows, or take a cache of fewer layers"
        if given
        else "layers, width, classes or --rows"
    )
    return ShortOfMemoryError(
        "too little memory to plant that much",
        expected=f"about {gigabytes(needed)} at once: of {BLOCK_ROWS} rows all layers, and the "
        "teacher",
        found=found,
        hint=f"lower {lower}",
    )


def gigabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:,.1f} MB"
