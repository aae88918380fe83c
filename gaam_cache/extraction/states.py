"""From rows to states: rows are prepared, encoded in batches, proven and assembled.

N rows, B rows of a batch, L layers, D hidden size.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from gaam_cache.common import devices
from gaam_cache.common.devices import CopyBack, to_numpy
from gaam_cache.common.errors import GaamWarning, NumericsError, ShortOfMemoryError
from gaam_cache.config import max_batch_tokens
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.batches import padded_tokens, token_budget_batches
from gaam_cache.extraction.encoded import Encoded, EncodedBatch, PreparedRows
from gaam_cache.extraction.proof import check_proof, choose_proof_rows
from gaam_cache.extraction.spreads import SpreadCheck
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.store.dtypes import (
    LARGEST,
    NUMPY_DTYPES,
    as_float32,
    first_not_finite,
)
from gaam_cache.store.plan import Plan
from gaam_cache.store.records import BATCHINGS, Batching

logger = logging.getLogger(__name__)
T = TypeVar("T")
FEW_ROWS = 8
"""Most rows to predict, in one call, that are encoded one at a time. On a CPU a small
Llama takes a second for them, and ten to measure which rows may share a batch."""


class StateExtractor:
    """Makes the states of rows; each stage may run in a thread of its own.

    The proof of the states is a sample of the rows that is encoded again, alone: it
    shows whether batches have changed the states.

    Rows share a batch only if the plan and the loaded encoder both allow it: the device
    that measured the plan's batching may be another one.

    Args:
        encoder: the loaded encoder.
        plan: of the cache.
        batch_tokens: most tokens of a batch; None for the default of the device.
        stats: counts what is done.
        for_prediction: the rows are those of a prediction: no part of the plan's cache,
            but encoded as its rows are.
    """

    def __init__(
        self,
        encoder: Encoder,
        plan: Plan,
        batch_tokens: int | None,
        stats: ExtractionStats,
        *,
        for_prediction: bool = False,
    ) -> None:
        self._encoder = encoder
        self._plan = plan
        self._stats = stats
        self._for_prediction = for_prediction
        self._batch_tokens = max_batch_tokens(batch_tokens, encoder.device.type)
        self._copies = CopyBack(encoder.device)
        self._spreads = SpreadCheck(encoder, plan, stats, for_prediction=for_prediction)
        # the summary of an extraction says which rows shared a batch
        stats.batching = self._stricter_batching()

    def _stricter_batching(self) -> Batching:
        """Which rows may share a batch: the stricter rule of plan and encoder."""
        # BATCHINGS are in order, the strictest rule last
        return max(self._plan.batching, self._encoder.batching, key=BATCHINGS.index)

    def prepare(
        self,
        rows: Sequence[object],
        copy_keys: Iterable[bytes],
        *,
        origin: str,
        first_row: int = 0,
        locations: Sequence[str] = (),
    ) -> PreparedRows:
        """Make rows ready for the encoder.

        Args:
            rows: as the encoder reads them.
            copy_keys: content of every row as bytes; rows with equal bytes are copies.
            origin: name of the source of the rows, for messages.
            first_row: number of the first of the rows in the source, from 0.
            locations: location of every row in the source, such as 'line 7'; empty if
                the number of the row is enough.

        Raises:
            DataError: a row has nothing to encode.
        """
        distinct_N = self._spreads.mark_distinct(copy_keys, len(rows))
        prepared = PreparedRows(
            inputs=self._encoder.prepare(rows),
            distinct=distinct_N,
            origin=origin,
            first_row=first_row,
            locations=locations,
        )
        empty_rows = np.flatnonzero(np.asarray(prepared.inputs.lengths) == 0)
        if len(empty_rows):
            row = int(empty_rows[0])
            raise self._encoder.empty_row_error(rows[row], prepared.where(row))
        return prepared

    def encode(
        self, prepared: PreparedRows, on_progress: Callable[[int], None]
    ) -> Encoded:
        """Encode all rows in batches, and the rows of the proof also alone.

        On a GPU this returns while the last batches are still being computed and
        copied: see ``wait``. If the memory is too small for a batch, all rows are
        encoded again in batches of half of the tokens; later rows have the smaller
        batches, too.

        Args:
            prepared: the rows.
            on_progress: called with the number of rows encoded so far.
        """
        if self._for_prediction:
            self._measure_batching_for(prepared)

        first_batch_tokens = self._batch_tokens
        encoded = self._try_encode(prepared, on_progress)
        while encoded is None:
            # the memory was too small, and the failed attempt has halved the batches
            encoded = self._try_encode(prepared, on_progress)
        if self._batch_tokens < first_batch_tokens:
            self._warn_of_smaller_batches(first_batch_tokens)
        self._stats.count_inputs(prepared.inputs)
        return encoded

    def _measure_batching_for(self, prepared: PreparedRows) -> None:
        """Measure which of these rows may share a batch, as far as it is not known yet.

        An extraction needs no such call: it has measured this for its longest row. Each
        prediction may bring longer rows.
        """
        longest = int(np.max(prepared.inputs.lengths))
        self._encoder.load_for(
            longest, encodes_alone=self._encodes_each_alone(prepared)
        )

    def _warn_of_smaller_batches(self, first_batch_tokens: int) -> None:
        """Warn that batches are smaller than at first, and record their size."""
        self._stats.smaller_batches = self._batch_tokens
        message = (
            f"out of memory with batches of {first_batch_tokens:,} tokens: goes on "
            f"with {self._batch_tokens:,}; the last digits differ from those of larger "
            f"batches (for the same ones: --set batch-tokens={self._batch_tokens})"
        )
        warnings.warn(message, GaamWarning, stacklevel=3)

    def _encodes_each_alone(self, prepared: PreparedRows) -> bool:
        """Whether each of these rows is encoded alone: a few rows of a prediction.

        The answer depends on the number of rows alone, not on whether the batching was
        measured in an earlier call. So few rows have the same bits in every call.
        """
        return self._for_prediction and len(prepared.inputs.lengths) <= FEW_ROWS

    def _try_encode(
        self, prepared: PreparedRows, on_progress: Callable[[int], None]
    ) -> Encoded | None:
        """Encode all rows; None if the memory was too small for one of the batches.

        Some rows, those of the proof, are also encoded alone.

        After a failure the counts in ``stats`` are as before, and the limit of tokens
        is smaller: the caller tries again.
        """
        inputs = prepared.inputs
        length_N = np.asarray(inputs.lengths)
        size_N = inputs.sizes
        batches = self._plan_batches(prepared)
        proof_rows = choose_proof_rows(length_N, batches)

        encoded = Encoded(prepared, batches=[], states_alone={})

        # counts to go back to after a failure
        stats = self._stats
        counts_before = (stats.rows_made, stats.tokens, stats.padded_tokens)
        encoded_rows = 0
        for batch, items in zip(batches, inputs.batches(batches), strict=True):
            encode = partial(self._encode_batch, prepared, batch, items, proof_rows)
            encoded_batch = self._attempt(encode, prepared, batch.tolist())
            if encoded_batch is None:
                stats.rows_made, stats.tokens, stats.padded_tokens = counts_before
                self._halve_batches(size_N, batch)
                return None
            encoded.batches.append(encoded_batch)
            encoded_rows += len(batch)
            stats.rows_made += len(batch)
            stats.tokens += int(length_N[batch].sum())
            stats.padded_tokens += padded_tokens(size_N, [batch])
            on_progress(encoded_rows)
        self._encode_proof(encoded, proof_rows)
        return encoded

    def _plan_batches(self, prepared: PreparedRows) -> list[NDArray[np.int64]]:
        """Divide rows into batches: an array of row numbers for each batch."""
        inputs = prepared.inputs
        batching = self._stricter_batching()
        if self._encodes_each_alone(prepared):
            batching = "alone"
        # sizes are in tokens, extents in a finer unit such as the samples of a sound
        return token_budget_batches(
            lengths=inputs.sizes,
            batch_tokens=self._batch_tokens,
            batching=batching,
            extents=inputs.extents,
            device_type=self._encoder.device.type,
        )

    def _halve_batches(
        self, size_N: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> None:
        """Lower the limit of tokens of a batch, because memory was too small for one.

        With the new limit, the rows of that batch make at least two batches.

        Args:
            size_N: tokens of every row.
            batch: numbers of the rows of the batch.
        """
        # the batch may have been smaller than the limit
        batch_tokens = int(size_N[batch].max()) * len(batch)
        self._batch_tokens = max(1, min(self._batch_tokens, batch_tokens) // 2)

    def _encode_proof(self, encoded: Encoded, proof_rows: Sequence[int]) -> None:
        """Encode the rows of the proof again, alone, and add the states to ``encoded``.

        The rows of the proof are a sample that shows whether batching moves states.
        """
        for row in proof_rows:
            item = encoded.prepared.inputs.items[row]
            encode_alone = partial(self._encoder.encode_alone, item)
            pooled = self._attempt(encode_alone, encoded.prepared, [row])
            # only a batch of several rows can be None
            assert pooled is not None
            # the copies to the host are complete after ``wait``
            encoded.states_alone[row] = {
                pooling: self._copies.start(x_BLD) for pooling, x_BLD in pooled.items()
            }

    def _attempt(
        self, encode: Callable[[], T], prepared: PreparedRows, rows: Sequence[int]
    ) -> T | None:
        """Call ``encode``, and return its result; None if the memory is too small.

        With None, the caller can split the batch of the rows.

        Args:
            encode: encodes the rows.
            prepared: tells the location of a row, for the error.
            rows: numbers of the rows that ``encode`` encodes.

        Raises:
            ShortOfMemoryError: the memory is too small for a single row.
        """
        try:
            return encode()
        except Exception as error:
            if not devices.out_of_memory(error):
                raise
            reason = devices.memory_message(error)
        # not inside the handler: the exception there keeps all tensors of the attempt
        devices.free_cached_memory(self._encoder.device)
        if len(rows) > 1:
            logger.info("a batch of %d rows is split: %s", len(rows), reason)
            return None
        raise ShortOfMemoryError(
            "the memory of the device is too small for one row",
            found=reason,
            where=prepared.where(rows[0]),
            hint=(
                "a smaller --max-length, another --device, --dtype bfloat16, "
                "or device-map auto"
            ),
        )

    def _encode_batch(
        self,
        prepared: PreparedRows,
        batch: NDArray[np.int64],
        items: Sequence[object],
        proof_rows: Sequence[int],
    ) -> EncodedBatch:
        """Encode a batch, and start to copy its states to the host.

        The proof of a shard encodes a few rows again, alone, and compares their states.

        Args:
            prepared: all rows.
            batch: numbers of the rows of the batch, (B,).
            items: these rows, as the encoder reads them.
            proof_rows: numbers of the rows of the proof, in this batch or others; their
                states are also returned as they were before storage.
        """
        storage_dtype = getattr(torch, self._plan.storage_dtype)
        if self._encodes_each_alone(prepared):
            [item] = items
            states_by_pooling = self._encoder.encode_alone(item)
        else:
            states_by_pooling = self._encoder.encode(items)

        proof_rows_of_batch = [row for row in proof_rows if row in batch]
        encoded = EncodedBatch(
            rows=batch,
            states={},
            sums={},
            before_storage={row: {} for row in proof_rows_of_batch},
        )
        for pooling, x_BLD in states_by_pooling.items():
            # rounded on the device: half of the bytes to copy
            stored_BLD = x_BLD.to(storage_dtype)
            encoded.states[pooling] = self._copies.start(stored_BLD)
            # the spread of the states is computed from four sums over the rows: of the
            # states and of their rounding errors, each also squared
            sums_4LD = self._spreads.sums(
                pooling, x_BLD, stored_BLD, prepared.distinct[batch]
            )
            encoded.sums[pooling] = self._copies.start(sums_4LD)
            for row in proof_rows_of_batch:
                # a copy, so that the batch's memory on the device can be used again
                x_LD = x_BLD[encoded.index_of(row)].clone()
                encoded.before_storage[row][pooling] = self._copies.start(x_LD)
        return encoded

    def wait(self) -> None:
        """Wait until the states of all encoded rows are on the host."""
        self._copies.wait()

    def checked_states(self, encoded: Encoded) -> dict[str, NDArray[Any]]:
        """Put the states in the order of the rows, and check them.

        Returns:
            Pooling -> (N, L, D) in the storage type. NumPy has no bfloat16; such states
            come as their bits.

        Raises:
            NumericsError: a number is not finite; a row in its batch has another state
                than alone (the proof); or the storage type rounds away the differences
                between rows.
            DataError: all rows have the same state in every layer.
        """
        # the device may still compute the last batches, or copy them to the host
        self.wait()
        states = {
            pooling: self._assemble(encoded, pooling) for pooling in self._plan.pooling
        }
        deviation = check_proof(
            encoded,
            states,
            self._encoder,
            self._plan,
            for_prediction=self._for_prediction,
        )
        self._stats.deviation = max(self._stats.deviation, deviation)
        self._stats.proven += len(encoded.states_alone)
        self._spreads.check(encoded, states)
        return states

    def _assemble(self, encoded: Encoded, pooling: str) -> NDArray[Any]:
        """States of one pooling in the order of the rows, (N, L, D).

        Raises:
            NumericsError: a number is not finite.
        """
        plan = self._plan
        num_rows = len(encoded.prepared.inputs.lengths)
        # batches are sorted by length: their rows go back to their own places
        states_NLD = np.empty(
            (num_rows, plan.num_layers, plan.hidden_size),
            dtype=NUMPY_DTYPES[plan.storage_dtype],
        )
        for batch in encoded.batches:
            states_NLD[batch.rows] = to_numpy(batch.states[pooling])
        index = first_not_finite(states_NLD, plan.storage_dtype)
        if index is not None:
            raise self._not_finite_error(states_NLD, index, encoded.prepared)
        return states_NLD

    def _not_finite_error(
        self,
        states_NLD: NDArray[Any],
        index: tuple[int, ...],
        prepared: PreparedRows,
    ) -> NumericsError:
        """The error for a number that is not finite.

        ``index`` is the row, the layer and the feature of this number, each from 0.
        """
        row, layer_index, feature = index
        layer = layer_index + self._plan.first_layer
        dtype = self._plan.storage_dtype
        states_LD = states_NLD[row]
        # NumPy has no bfloat16: such states are bits
        if dtype == "bfloat16":
            states_LD = as_float32(states_LD)
        problem = f"the encoder's layer {layer} yields numbers that are not finite"
        hint = "look at the row, or compute in --dtype float32 with a new --out"

        # float16 has a smaller range than the encoder's arithmetic: rounding makes a
        # large number infinite. A NaN never comes from rounding.
        if dtype == "float16" and np.isinf(states_LD[layer_index, feature]):
            problem = f"a state of layer {layer} cannot be stored as {dtype}"
            hint = "--storage-dtype float32 and a new --out"
        if self._for_prediction:
            hint = "leave the row out"
        return NumericsError(
            problem,
            expected=f"finite values up to {LARGEST[dtype]:g}",
            found=f"{states_LD[layer_index, feature]} in feature {feature}",
            where=prepared.where(row),
            hint=hint,
        )
