"""From rows to states: made ready, encoded in batches, proven. The one way, whoever asks for them.

N rows, B rows of a batch, L layers, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.devices import CopyBack, NoRoom, attempt, bits
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.encoders._deviation import proof_limit, relative
from gaam_cache.errors import NumericsError
from gaam_cache.extraction.batching import (
    budget_of,
    costs,
    padded_tokens,
    strictest,
    token_budget_batches,
)
from gaam_cache.extraction.job import warn
from gaam_cache.extraction.piece import Piece
from gaam_cache.extraction.proof import Deviation, choose_rows, unproven
from gaam_cache.extraction.room import TooLarge, no_room, smaller, went_on
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.unstorable import Unstorable, unstorable
from gaam_cache.store.dtypes import LOST, NUMPY_DTYPES, check_digits, first_not_finite
from gaam_cache.store.encoding import Encoding


class EncodedBatch(NamedTuple):
    """Rows of a piece and their states."""

    rows: NDArray[np.int64]
    states: dict[str, Tensor]
    """Pooling -> (B, L, D) in the storage type, on the host."""
    digits: dict[str, Tensor]
    """Pooling -> (2, L): how many lost their digits, how many are not 0; none where nothing is
    rounded."""
    exact: dict[int, dict[str, Tensor]]
    """Row in the piece, of those that prove it, -> pooling -> (L, D) before it was rounded."""


class Encoded(NamedTuple):
    """States of a piece, and those of some of its rows once more."""

    batches: list[EncodedBatch]
    alone: dict[int, dict[str, Tensor]]
    """Row in the piece -> pooling -> (1, L, D) float32, on the host."""


def _digits(x_BLD: Tensor, stored_BLD: Tensor) -> Tensor:
    """(2, L): how many numbers lost their digits when they were rounded, how many are not 0."""
    layers = x_BLD.unbind(1)  # one at a time: of all at once there may be no room for copies
    both = zip(layers, stored_BLD.unbind(1), strict=True)
    lost = [((y - x).abs_() > LOST * x.abs()).count_nonzero() for x, y in both]
    return torch.stack([*lost, *(x.count_nonzero() for x in layers)]).view(2, -1)


class StateMaker:
    """Makes the states of pieces of rows; each stage may run in a thread of its own.

    Args:
        encoder: which is loaded.
        encoding: how rows are encoded; the batches of whoever began it count too, and may have been
            measured on a device that is not ours.
        batch_tokens: of a batch at most; None: what suits the device.
        tally: counts what is done.
        further: whether the rows are no cache's, but encoded as those of one: what to do about one
            that cannot be is then something else.
    """

    def __init__(
        self,
        encoder: Encoder,
        encoding: Encoding,
        batch_tokens: int | None,
        tally: Tally,
        *,
        further: bool = False,
    ) -> None:
        self.tally = tally
        self._encoder = encoder
        self._encoding = encoding
        self._further = further
        self._batch_tokens = budget_of(batch_tokens, encoder.device.type)
        self.batching = self.tally.batching = strictest(encoding.batching, encoder.batching)
        self._copies = CopyBack(encoder.device)

    def prepare(self, piece: Piece) -> Inputs:
        """Make rows ready.

        Raises:
            DataError: a row of which nothing is left to encode.
        """
        inputs = self._encoder.prepare(piece.inputs[piece.start : piece.stop])
        if len(empty := np.flatnonzero(np.asarray(inputs.lengths) == 0)):
            row = int(empty[0])
            raise self._encoder.refuse_empty(piece.inputs[piece.start + row], piece.where(row))
        return inputs

    def encode(self, piece: Piece, inputs: Inputs, tick: Callable[[int], None]) -> Encoded:
        """Pooled states in the storage type, batch by batch; those of some rows also alone.

        On a GPU this returns while the last batches are still being computed and copied: the device
        never waits for the disk, nor for Python to look at a number. Where its memory is too small
        for a batch, the piece is begun again with half of the tokens a batch, and so are those that
        follow: all rows of a piece are in batches of one budget.

        Raises:
            ShortOfMemoryError: it is too small for one row.

        Warns:
            GaamWarning: batches had to become smaller.
        """
        asked, length_N, size_N = self._batch_tokens, np.asarray(inputs.lengths), inputs.sizes
        while True:
            batches = token_budget_batches(
                size_N, self._batch_tokens, self.batching, inputs.extents
            )
            chosen = choose_rows(length_N, batches)
            encoded = self._encode_batches(inputs, batches, chosen, tick)
            if isinstance(encoded, list):
                break
            self._batch_tokens = smaller(encoded, piece, self._batch_tokens)
        if self._batch_tokens < asked:
            self.tally.smaller_batches = self._batch_tokens
            warn([went_on(asked, self._batch_tokens)], stacklevel=4)
        cost, padded_cost = costs(size_N, self._batch_tokens, self.batching, batches)
        self.tally.cost += cost
        self.tally.padded_cost += padded_cost
        self.tally.truncated += sum(inputs.truncated)
        alone = {}
        for row in chosen:
            encode_alone = partial(self._encoder.encode_alone, inputs.items[row])
            pooled = attempt(encode_alone, self._encoder.device)
            if isinstance(pooled, NoRoom):
                raise no_room(TooLarge(pooled, [row], [int(size_N[row])]), piece)
            alone[row] = {name: self._copies.start(x) for name, x in pooled.items()}
        return Encoded(encoded, alone)

    def _encode_batches(
        self,
        inputs: Inputs,
        batches: list[NDArray[np.int64]],
        chosen: list[int],
        tick: Callable[[int], None],
    ) -> list[EncodedBatch] | TooLarge:
        """States of every batch, or the one that there is no memory for; then none is counted."""
        encoded, tally, done = [], self.tally, 0
        before = tally.rows, tally.tokens, tally.padded_tokens
        length_N, size_N = np.asarray(inputs.lengths), inputs.sizes
        for batch, items in zip(batches, inputs.batches(batches), strict=True):
            encode = partial(self._encode_batch, items, batch, chosen)
            states = attempt(encode, self._encoder.device)
            if isinstance(states, NoRoom):
                tally.rows, tally.tokens, tally.padded_tokens = before
                return TooLarge(states, batch.tolist(), size_N[batch].tolist())
            encoded.append(states)
            done += len(batch)
            tally.rows += len(batch)
            tally.tokens += int(length_N[batch].sum())
            tally.padded_tokens += padded_tokens(size_N, [batch])
            tick(done)
        return encoded

    def _encode_batch(
        self, items: Sequence[Any], batch: NDArray[np.int64], chosen: list[int]
    ) -> EncodedBatch:
        """On their way to the host, in the storage type."""
        dtype, start = getattr(torch, self._encoding.storage_dtype), self._copies.start
        encoded = EncodedBatch(batch, {}, {}, {row: {} for row in chosen if row in batch})
        for name, x_BLD in self._encoder.encode(items).items():
            stored_BLD = x_BLD.to(dtype)
            encoded.states[name] = start(stored_BLD)
            if dtype != x_BLD.dtype:
                encoded.digits[name] = start(_digits(x_BLD, stored_BLD))
            for row, exact in encoded.exact.items():
                exact[name] = start(x_BLD[int((batch == row).argmax())].clone())
        return encoded

    def wait(self) -> None:
        """Wait for all that was encoded to be on the host."""
        self._copies.wait()

    def states(self, piece: Piece, encoded: Encoded) -> dict[str, NDArray[Any]]:
        """What was encoded, in the order of the rows: pooling -> (N, L, D) in the storage type.

        bfloat16, which NumPy lacks, comes as its bits. All is finite, and some of it proven.

        Raises:
            Unstorable: a state that the storage type cannot hold.
            NumericsError: a state that is not that of its row alone, or a layer of states that are
                too small for the storage type.
        """
        self.wait()
        states = {
            name: self._assemble(piece, encoded.batches, name) for name in self._encoding.pooling
        }
        self._prove(piece, states, encoded)
        return states

    def _assemble(self, piece: Piece, encoded: list[EncodedBatch], pooling: str) -> NDArray[Any]:
        """States of one pooling, (N, L, D), as NumPy sees them; all finite."""
        encoding = self._encoding
        shape = (piece.count, encoding.num_layers, encoding.hidden_size)
        states = np.empty(shape, dtype=NUMPY_DTYPES[encoding.storage_dtype])
        for batch in encoded:
            states[batch.rows] = bits(batch.states[pooling])
        if (bad := first_not_finite(states, encoding.storage_dtype)) is not None:
            raise Unstorable(piece, pooling, bad)
        counts = [batch.digits[pooling] for batch in encoded if pooling in batch.digits]
        if counts and not self._further:  # else the decoders learned from such states
            check_digits(
                torch.stack(counts).sum(0).numpy(),
                encoding.storage_dtype,
                first_layer=encoding.first_layer,
                where=piece.where(0, piece.count - 1),
            )
        return states

    def _prove(self, piece: Piece, states: dict[str, NDArray[Any]], encoded: Encoded) -> None:
        """Compare states with those that were computed alone, and what is stored with both."""
        dtype = getattr(torch, self._encoding.storage_dtype)
        worst = Deviation(0.0, 0, 0)
        for batch in encoded.batches:
            for row, pooled in batch.exact.items():
                for name, x_LD in pooled.items():
                    share_L = relative(x_LD.numpy(), encoded.alone[row][name][0].numpy())
                    stored_LD = bits(x_LD.to(dtype))
                    share_L[(states[name][row] != stored_LD).any(axis=-1)] = math.inf
                    layer = int(share_L.argmax())
                    worst = max(worst, Deviation(float(share_L[layer]), layer, row))
        self.tally.proven += len(encoded.alone)
        self.tally.deviation = max(self.tally.deviation, worst.share)
        limit = proof_limit(self._encoder.dtype)
        if worst.share > limit:
            raise unproven(
                worst,
                limit,
                self.batching,
                piece.where(worst.row),
                first_layer=self._encoding.first_layer,
                further=self._further,
            )

    def explain(self, error: Unstorable) -> NumericsError:
        """Say what the encoder yields where a state could not be stored; encodes that row again."""
        row, layer, feature = error.index
        piece, encoding = error.piece, self._encoding
        items = self._encoder.prepare([piece.inputs[piece.start + row]]).items
        return unstorable(
            error,
            float(self._encoder.encode(items)[error.pooling][0, layer, feature]),
            encoding.storage_dtype,
            first_layer=encoding.first_layer,
            further=self._further,
        )
