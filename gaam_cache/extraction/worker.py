"""The three stages of one shard: tokenise, encode, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.devices import NoRoom, attempt
from gaam_cache.encoders._base import Encoder
from gaam_cache.encoders._deviation import proof_limit
from gaam_cache.encoders._host_copy import CopyBack, bits
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.errors import NumericsError
from gaam_cache.extraction.batching import (
    budget_of,
    costs,
    padded_tokens,
    strictest,
    token_budget_batches,
)
from gaam_cache.extraction.job import warn
from gaam_cache.extraction.proof import choose_rows, largest_deviation, unproven
from gaam_cache.extraction.room import TooLarge, no_room, smaller, went_on
from gaam_cache.extraction.row_arrays import RowArrays
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.unstorable import Unstorable, unstorable
from gaam_cache.format.finite import first_not_finite
from gaam_cache.format.layout import embeddings_key, shard_attributes
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.format.receipt import NUMPY_DTYPES, receipt_path
from gaam_cache.format.shard import build_image, publish
from gaam_cache.sources._base import Rows


class EncodedBatch(NamedTuple):
    """Rows of a shard and their states."""

    rows: NDArray[np.int64]
    states: dict[str, Tensor]
    """Pooling -> (B, L, D) in the storage type, on the host."""


class EncodedShard(NamedTuple):
    """States of a shard, and those of some of its rows once more."""

    batches: list[EncodedBatch]
    alone: dict[int, dict[str, Tensor]]
    """Row in the shard -> pooling -> (1, L, D) float32, on the host."""


class ShardWorker:
    """Makes the shards of a plan; each stage may run in a thread of its own."""

    def __init__(
        self,
        config: ExtractConfig,
        plan: Plan,
        encoder: Encoder,
        rows: dict[str, Rows],
        tally: Tally,
    ) -> None:
        self.tally = tally
        self._config = config
        self._plan = plan
        self._encoder = encoder
        self._rows = rows
        self._row_arrays = RowArrays(plan, rows)
        self._batch_tokens = budget_of(config.batch_tokens, encoder.device.type)
        # the plan speaks for whoever began the cache, on a device that may not be ours
        self.batching = self.tally.batching = strictest(plan.batching, encoder.batching)
        self._copies = CopyBack(encoder.device)
        self._started = time.perf_counter()

    def prepare(self, shard: ShardSpec) -> Inputs:
        """Make the rows of a shard ready.

        Raises:
            DataError: a row of which nothing is left to encode.
        """
        part = self._rows[shard.split]
        inputs = self._encoder.prepare(part.inputs[shard.start : shard.stop])
        if len(empty := np.flatnonzero(np.asarray(inputs.lengths) == 0)):
            row = shard.start + int(empty[0])
            where = f"{part.origin}, row {row + 1}"
            raise self._encoder.refuse_empty(part.inputs[row], where)
        return inputs

    def exists(self, shard: ShardSpec) -> bool:
        """Whether the shard has its receipt by now."""
        return receipt_path(Path(self._config.out), shard.name).exists()

    def encode(self, shard: ShardSpec, inputs: Inputs, tick: Callable[[int], None]) -> EncodedShard:
        """Pooled states of one shard in the storage type, batch by batch; some rows also alone.

        On a GPU this returns while the last batches are still being computed and copied: the device
        never waits for the disk, nor for Python to look at a number. Where its memory is too small
        for a batch, the shard is begun again with half of the tokens a batch, and so are those that
        follow: all rows of a shard are in batches of one budget.

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
            encoded = self._encode_batches(inputs, batches, tick)
            if isinstance(encoded, list):
                break
            self._batch_tokens = smaller(encoded, shard, self._batch_tokens, self._rows)
        if self._batch_tokens < asked:
            self.tally.smaller_batches = self._batch_tokens
            warn([went_on(asked, self._batch_tokens)], stacklevel=3)
        cost, padded_cost = costs(size_N, self._batch_tokens, self.batching, batches)
        self.tally.cost += cost
        self.tally.padded_cost += padded_cost
        self.tally.truncated += sum(inputs.truncated)
        alone = {}
        for row in choose_rows(length_N, batches):
            encode_alone = partial(self._encoder.encode_alone, inputs.items[row])
            pooled = attempt(encode_alone, self._encoder.device)
            if isinstance(pooled, NoRoom):
                large = TooLarge(pooled, [row], [int(size_N[row])])
                raise no_room(large, shard, self._rows)
            alone[row] = {name: self._copies.start(x) for name, x in pooled.items()}
        return EncodedShard(encoded, alone)

    def _encode_batches(
        self, inputs: Inputs, batches: list[NDArray[np.int64]], tick: Callable[[int], None]
    ) -> list[EncodedBatch] | TooLarge:
        """States of every batch, or the one that there is no memory for; then none is counted."""
        encoded, tally, done = [], self.tally, 0
        before = tally.rows, tally.tokens, tally.padded_tokens
        length_N, size_N = np.asarray(inputs.lengths), inputs.sizes
        for batch, items in zip(batches, inputs.batches(batches), strict=True):
            encode = partial(self._encode_batch, items)
            states = attempt(encode, self._encoder.device)
            if isinstance(states, NoRoom):
                tally.rows, tally.tokens, tally.padded_tokens = before
                return TooLarge(states, batch.tolist(), size_N[batch].tolist())
            encoded.append(EncodedBatch(batch, states))
            done += len(batch)
            tally.rows += len(batch)
            tally.tokens += int(length_N[batch].sum())
            tally.padded_tokens += padded_tokens(size_N, [batch])
            tick(done)
        return encoded

    def _encode_batch(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """On their way to the host, in the storage type."""
        dtype = getattr(torch, self._plan.storage_dtype)
        pooled = self._encoder.encode(items)
        return {name: self._copies.start(x.to(dtype)) for name, x in pooled.items()}

    def write(self, shard: ShardSpec, inputs: Inputs, encoded: EncodedShard) -> None:
        """Check, prove and publish a shard.

        Raises:
            Unstorable: a state that the storage type cannot hold.
            NumericsError: a state that is not that of its text alone.
            StorageError: the file system refused.
        """
        self._copies.wait()
        start = time.perf_counter()
        plan = self._plan
        states = {name: self._assemble(shard, encoded.batches, name) for name in plan.pooling}
        self._prove(shard, states, encoded.alone)
        arrays = {
            embeddings_key(plan, name): (plan.storage_dtype, values)
            for name, values in states.items()
        }
        arrays |= self._row_arrays.of(shard, inputs.lengths)
        image, specs = build_image(arrays, shard_attributes(plan, shard))
        self.tally.bytes += len(image)
        self.tally.shards += publish(
            Path(self._config.out),
            shard.name,
            image,
            {
                "fingerprint": plan.fingerprint,
                "split": shard.split,
                "start": shard.start,
                "stop": shard.stop,
                "truncated": sum(inputs.truncated),
                "datasets": specs,
            },
        )
        self.tally.write_seconds += time.perf_counter() - start

    def _assemble(
        self, shard: ShardSpec, encoded: list[EncodedBatch], pooling: str
    ) -> NDArray[Any]:
        """States of one pooling in data-set order, (rows, L, D), as NumPy sees them; all finite."""
        shape = (shard.stop - shard.start, self._plan.num_layers, self._plan.hidden_size)
        states = np.empty(shape, dtype=NUMPY_DTYPES[self._plan.storage_dtype])
        for batch, tensors in encoded:
            states[batch] = bits(tensors[pooling])
        if (bad := first_not_finite(states, self._plan.storage_dtype)) is not None:
            raise Unstorable(shard, pooling, bad)
        return states

    def _prove(
        self,
        shard: ShardSpec,
        states: dict[str, NDArray[Any]],
        alone: dict[int, dict[str, Tensor]],
    ) -> None:
        """Compare what is about to be published with states that were computed alone."""
        dtype = self._plan.storage_dtype
        worst = max(
            largest_deviation(states[name][row], x_BLD[0].numpy(), dtype)._replace(row=row)
            for row, pooled in alone.items()
            for name, x_BLD in pooled.items()
        )
        self.tally.proven += len(alone)
        self.tally.deviation = max(self.tally.deviation, worst.share)
        limit = proof_limit(self._encoder.dtype, dtype)
        if worst.share > limit:
            where = f"{self._rows[shard.split].origin}, row {shard.start + worst.row + 1}"
            first = self._plan.first_layer
            raise unproven(worst, limit, self.batching, where, first_layer=first)

    def explain(self, error: Unstorable) -> NumericsError:
        """Say what the encoder yields where a state could not be stored; encodes that row again."""
        place, layer, feature = error.index
        part = self._rows[error.shard.split]
        row = error.shard.start + place
        items = self._encoder.prepare([part.inputs[row]]).items
        value = float(self._encoder.encode(items)[error.pooling][0, layer, feature])
        where = f"{part.origin}, row {row + 1}"
        plan = self._plan
        return unstorable(error, value, plan.storage_dtype, where, first_layer=plan.first_layer)

    def speed(self) -> str:
        """Tokens per second so far, for people."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        share = 100 * self.tally.padding_share
        return f"{self.tally.tokens / seconds:,.0f} {self._encoder.unit}/s, {share:.1f}% padding"
