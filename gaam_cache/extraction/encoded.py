"""Rows on their way to a shard: made ready for the encoder, then encoded.

N rows, B rows of a batch, L layers, D hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.encoders.base import Inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRows:
    """Rows of a shard, or rows to predict, ready for the encoder."""

    inputs: Inputs  # the rows as the encoder reads them
    distinct: NDArray[np.bool_]
    """(N,): whether no row before it in the shard has the same content. Rows of very
    small shards are compared with those of other small shards, too."""
    origin: str  # name of the source of the rows, for messages
    first_row: int = 0  # number of the first of the rows in the source, from 0
    locations: Sequence[str] = ()
    """Of every row in the source, 'line 7'; empty if the row's number is enough."""

    def where(self, row: int) -> str:
        """The source and the location of a row, for messages.

        ``row`` is the number of the row among these rows, from 0.
        """
        return f"{self.origin}, {self._location(row)}"

    @property
    def where_all(self) -> str:
        """The source and the locations of the first and the last row, for messages."""
        last = len(self.distinct) - 1
        return f"{self.origin}, {self._location(0)} to {self._location(last)}"

    def _location(self, row: int) -> str:
        """The location of a row in the source: 'row 7', where people count from 1."""
        if self.locations:
            return self.locations[row]
        return f"row {self.first_row + row + 1}"


class EncodedBatch(NamedTuple):
    """Some of the prepared rows, and their states."""

    rows: NDArray[np.int64]  # (B,): numbers of the rows among the prepared rows
    states: dict[str, Tensor]  # pooling -> (B, L, D) in the storage type, on the host
    sums: dict[str, Tensor]  # pooling -> (4, L, D), see ``SpreadCheck.sums``
    before_storage: dict[int, dict[str, Tensor]]
    """Row of the proof -> pooling -> (L, D), not rounded to the storage type. Rows of
    the proof are a sample that is encoded again, alone."""

    def index_of(self, row: int) -> int:
        """Position in the batch of a prepared row, which must be in it."""
        return int((self.rows == row).argmax())


class Encoded(NamedTuple):
    """States of prepared rows; and of the rows of the proof, encoded again alone."""

    prepared: PreparedRows
    batches: list[EncodedBatch]
    states_alone: dict[int, dict[str, Tensor]]
    """Row of the proof -> pooling -> (1, L, D) float32, on the host."""
