"""A batch that the memory of the device is too small for: what comes next, and what is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gaam_cache.devices import NoRoom
from gaam_cache.errors import ShortOfMemoryError
from gaam_cache.extraction.piece import Piece


class TooLarge(NamedTuple):
    """A batch of a piece that there was no memory for."""

    why: NoRoom
    rows: Sequence[int]
    """In the piece, from 0."""
    lengths: Sequence[int]
    """Tokens of every row."""


def smaller(found: TooLarge, piece: Piece, batch_tokens: int) -> int:
    """The token budget after a batch that was too large: half of it, or less.

    Half of what the batch had, padding included, where that is less than the budget: the batch is
    then cut in two at least, so that this ends.

    Args:
        found: the batch.
        piece: where it is.
        batch_tokens: the budget so far.

    Raises:
        ShortOfMemoryError: it was of one row.
    """
    if len(found.rows) == 1:
        raise no_room(found, piece)
    return max(1, min(batch_tokens, max(found.lengths) * len(found.rows)) // 2)


def went_on(before: int, now: int) -> str:
    """What is said where batches became smaller."""
    return (
        f"out of memory with batches of {before:,} tokens: goes on with {now:,}. States are those "
        "of other batches up to rounding; a run that has the memory writes other last digits "
        f"(--set batch-tokens={now} is the same everywhere)"
    )


def no_room(found: TooLarge, piece: Piece) -> ShortOfMemoryError:
    """The refusal of a row that does not fit alone."""
    [row], [length] = found.rows, found.lengths
    return ShortOfMemoryError(
        "the memory of the device is too small for one row",
        expected=f"memory for the {length:,} tokens of the row beside the encoder",
        found=found.why.said,
        where=piece.where(row),
        hint=f"--max-length below {length}, another --device, --dtype bfloat16, or device-map "
        "auto, which spreads the encoder over GPUs and the CPU",
    )
