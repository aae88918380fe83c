"""Rows on their way to an encoder.

N rows, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._token_ids import TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Rows made ready for an encoder, on the CPU."""

    items: Sequence[Any]
    """One entry per row: token ids, or what else the encoder reads."""
    lengths: Sequence[int] | NDArray[np.int64]
    """Length of every row in the encoder's unit (tokens)."""
    truncated: Sequence[bool]
    """Whether the row was longer than the maximum and was cut."""
    extents: Sequence[int] | NDArray[np.int64] | None = None
    """What must be equal where only rows of equal length may share a batch, if that is finer than
    tokens and grows with them: of a sound its samples."""
    decoded: bool = False
    """Whether ``items`` reads and decodes when it is asked: then the next batch is made ready in a
    thread while the encoder is busy."""
    width: int | None = None
    """What every row takes of a batch, in the encoder's unit, where that is not its length: all are
    filled to one length and there is no way around it."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """What every row takes of a batch."""
        length_N = np.asarray(self.lengths, dtype=np.int64)
        return length_N if self.width is None else np.full_like(length_N, self.width)

    def batch(self, row_B: NDArray[np.int64]) -> Sequence[Any]:
        """The items of some rows, as ``Encoder.encode`` takes them."""
        if isinstance(self.items, TokenIds):
            return self.items.take(row_B)
        return [self.items[row] for row in row_B]

    def batches(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Sequence[Any]]:
        """The items of every batch in turn; what has to be decoded is, one batch ahead.

        Raises:
            DataError: one cannot be decoded any more.
        """
        if not self.decoded:
            yield from map(self.batch, batches)
            return
        ahead: Future[Sequence[Any]] | None = None
        with ThreadPoolExecutor(1, "decode") as reader:
            for batch in [*batches, None]:
                ready, ahead = ahead, None if batch is None else reader.submit(self.batch, batch)
                if ready is not None:
                    yield ready.result()
