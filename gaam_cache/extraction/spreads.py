"""Checks that rows of different content have different states.

All rows of a shard may have the same state in a layer, or the storage type may round
their differences away. Two rows may also be twins: their content differs, their states
do not.

N rows, B rows of a batch, L layers, K layers at a time, D hidden size.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.common.errors import DataError
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.encoded import Encoded, PreparedRows
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.base import DIGEST_BYTES
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import Plan
from gaam_cache.store.spread import FEWEST_ROWS, Spread, count_twins

Floats = NDArray[np.float64]
COPIED_NUMBERS = 2**24
"""Numbers of some layers of a batch that are copied at a time: 64 MiB in float32."""


class SpreadCheck:
    """Measures how much the states of rows differ, in every shard.

    This needs sums over rows of states, of their squares and of their rounding errors.
    A reference state, the mean of the first batch, is subtracted from all states
    beforehand: squares of small offsets from it keep their digits.

    A shard of very few rows does not show whether all states are the same. So the sums
    of all small shards so far are added up.

    Args:
        encoder: the loaded encoder.
        plan: of the cache.
        stats: what is suspicious is counted here.
        for_prediction: the rows are those of a prediction, and no part of the cache.
            They are never refused: the decoders have learned from such states already.
    """

    def __init__(
        self,
        encoder: Encoder,
        plan: Plan,
        stats: ExtractionStats,
        *,
        for_prediction: bool,
    ) -> None:
        self._encoder = encoder
        self._plan = plan
        self._stats = stats
        self._for_prediction = for_prediction
        self._references: dict[str, Tensor] = {}
        """Pooling -> state that is subtracted from all states beforehand, (L, D)."""
        self._small_digests: set[bytes] = set()
        """Of the rows of all shards with very few rows: of copies only one counts."""
        self._small_sums: dict[str, tuple[Floats, int]] = {}
        """Pooling -> sums over the rows of all shards with very few rows; their number.
        """

    def mark_distinct(
        self, copy_keys: Iterable[bytes], num_rows: int
    ) -> NDArray[np.bool_]:
        """Tell whether each row of a shard is the first one with its content.

        A row is compared with the rows before it in its shard; in a small shard, also
        with the rows of all small shards so far. This records the rows of small shards.

        Args:
            copy_keys: content of every row as bytes; copies have equal bytes.
            num_rows: number of the rows.

        Returns:
            A truth value for every row, (N,).
        """
        digests = set[bytes]()
        if self._is_small(num_rows):
            digests = self._small_digests
        distinct_N = np.zeros(num_rows, np.bool_)
        for row, copy_key in enumerate(copy_keys):
            # a digest is kept instead of the row, which may be a whole sound
            digest = hashlib.blake2b(copy_key, digest_size=DIGEST_BYTES).digest()
            distinct_N[row] = digest not in digests
            digests.add(digest)
        return distinct_N

    def sums(
        self,
        pooling: str,
        x_BLD: Tensor,
        stored_BLD: Tensor,
        distinct_B: NDArray[np.bool_],
    ) -> Tensor:
        """Four sums over the distinct rows of a batch, from which the spread follows.

        They are sums of offsets, squared offsets, rounding errors and squared rounding
        errors. The offset of a state is its difference from a reference state, which
        the first batch sets.

        Args:
            pooling: of the states.
            x_BLD: states, (B, L, D).
            stored_BLD: the same states in the storage type.
            distinct_B: whether a row is the first with its content; others are left
                out of the sums.

        Returns:
            (4, L, D), on the device of the states.
        """
        # the reference is the mean of the first batch: a single row may be unlike all
        # others, and large distances from it would leave few digits for the differences
        if pooling not in self._references:
            self._references[pooling] = x_BLD.mean(0)
        # Python does not wait for this copy: else the GPU would wait for Python next
        distinct = devices.copy_to_device(torch.from_numpy(distinct_B), x_BLD.device)
        weight_B = distinct.to(x_BLD.dtype)

        num_rows, _num_layers, hidden_size = x_BLD.shape
        layers_at_once = max(1, COPIED_NUMBERS // (num_rows * hidden_size))
        sums_of_layers = []
        # K layers at a time: the device may have no room for copies of all layers, and
        # a GPU takes long for many small steps
        for x_BKD, stored_BKD, reference_KD in zip(
            torch.split(x_BLD, layers_at_once, 1),
            torch.split(stored_BLD, layers_at_once, 1),
            torch.split(self._references[pooling], layers_at_once),
            strict=True,
        ):
            offset_BKD = x_BKD - reference_KD
            error_BKD = stored_BKD.to(x_BKD.dtype) - x_BKD
            summands = (offset_BKD, offset_BKD.square(), error_BKD, error_BKD.square())
            # a product with weights of 1 and 0 is the sum over the distinct rows
            sums_4KD = [torch.tensordot(weight_B, y_BKD, 1) for y_BKD in summands]
            sums_of_layers.append(torch.stack(sums_4KD))
        return torch.cat(sums_of_layers, 1)

    def check(self, encoded: Encoded, states: Mapping[str, NDArray[Any]]) -> None:
        """Refuse states that are the same in all rows; count what is suspicious.

        Suspicious are layers in which all rows have the same state, layers that lose
        digits, and twins: rows that differ, but have the same state. Rows of a
        prediction are counted, but not refused.

        Args:
            encoded: the rows of a shard.
            states: the states to be stored, pooling -> (N, L, D).

        Raises:
            DataError: all rows have the same state, in every layer and pooling.
            NumericsError: the storage type rounds away the differences between rows in
                a layer.
        """
        prepared = encoded.prepared
        is_small = self._is_small(len(prepared.distinct))
        all_rows_are_equal = True
        for pooling, states_NLD in states.items():
            # for a small shard, of the rows of all small shards so far
            spread = self._update_spread(encoded, pooling)
            noise_LD = _noise(encoded, pooling)
            flat_L = spread.flat_layers(noise_LD, self._encoder.dtype)
            # a few rows may have the same state by chance: they prove nothing
            shows_flat_layers = spread.rows >= FEWEST_ROWS
            if not shows_flat_layers or not flat_L.all():
                all_rows_are_equal = False
            if shows_flat_layers:
                self._count_flat_layers(pooling, flat_L)
            # the decoders of a prediction have learned from such states already
            if self._for_prediction:
                continue
            self._check_digits(pooling, spread, flat_L, prepared)
            # a few rows do not show what a usual distance between rows is
            if not is_small:
                distinct_NLD = states_NLD[prepared.distinct]
                self._count_twins(pooling, distinct_NLD, spread, flat_L, noise_LD)

        if not is_small:
            self._stats.distinct += int(prepared.distinct.sum())
        if all_rows_are_equal and not self._for_prediction:
            raise self._same_state_error(prepared, next(iter(states)))

    def _is_small(self, num_rows: int) -> bool:
        """Whether a shard has too few rows to show whether their states differ.

        Small shards are judged together. The rows of a prediction are no shard: each
        call is judged by itself, however few its rows are.
        """
        return num_rows < FEWEST_ROWS and not self._for_prediction

    def _update_spread(self, encoded: Encoded, pooling: str) -> Spread:
        """Spread of the distinct rows of a shard: of copies only the first counts.

        For a small shard it is the spread over all small shards so far: this adds the
        sums of the shard to those of earlier ones, so it must be called only once for
        each shard.
        """
        distinct_N = encoded.prepared.distinct
        # see ``sums``: four sums over the distinct rows, of states minus the reference
        batch_sums = [batch.sums[pooling].numpy() for batch in encoded.batches]
        sums_4LD: Floats = np.sum(batch_sums, axis=0, dtype=np.float64)
        num_rows = int(distinct_N.sum())
        if self._is_small(len(distinct_N)):
            if pooling in self._small_sums:
                sums_before_4LD, rows_before = self._small_sums[pooling]
                sums_4LD = sums_4LD + sums_before_4LD
                num_rows += rows_before
            self._small_sums[pooling] = (sums_4LD, num_rows)
        reference_LD = self._references[pooling].cpu().numpy()
        return Spread.from_sums(sums_4LD, reference_LD, num_rows)

    def _count_flat_layers(self, pooling: str, flat_L: NDArray[np.bool_]) -> None:
        """Count this shard for every layer in which all rows have the same state.

        ``flat_L`` says which layers these are.
        """
        for layer in np.flatnonzero(flat_L).tolist():
            name = f"{pooling}, layer {layer + self._plan.first_layer}"
            self._stats.flat[name] = self._stats.flat.get(name, 0) + 1

    def _check_digits(
        self,
        pooling: str,
        spread: Spread,
        flat_L: NDArray[np.bool_],
        prepared: PreparedRows,
    ) -> None:
        """Refuse layers that rounding destroys; record layers that lose some digits.

        Args:
            pooling: of the states.
            spread: of the rows.
            flat_L: which layers are the same in all rows; these have nothing to lose.
            prepared: the rows, for the place in the error.
        """
        losses = spread.check_storage_precision(
            self._plan.storage_dtype,
            flat_L,
            first_layer=self._plan.first_layer,
            where=prepared.where_all,
        )
        # a layer is warned of once: words on the first shard that loses digits
        for layer, loss_in_words in losses.items():
            self._stats.coarse.setdefault(f"{pooling}, layer {layer}", loss_in_words)

    def _count_twins(
        self,
        pooling: str,
        distinct_NLD: NDArray[Any],
        spread: Spread,
        flat_L: NDArray[np.bool_],
        noise_LD: Floats,
    ) -> None:
        """Add to the count of distinct rows that have the state of another row.

        Args:
            pooling: of the states.
            distinct_NLD: stored states of the distinct rows.
            spread: of these rows.
            flat_L: which layers are the same in all rows.
            noise_LD: difference of a row from itself in another batch.
        """
        # NumPy has no bfloat16: such states are bits
        if self._plan.storage_dtype == "bfloat16":
            distinct_NLD = as_float32(distinct_NLD)
        twins = count_twins(distinct_NLD, spread, flat_L, noise_LD)
        self._stats.twins[pooling] = self._stats.twins.get(pooling, 0) + twins

    def _same_state_error(self, prepared: PreparedRows, pooling: str) -> DataError:
        """The error for rows that all have the same state in every layer.

        ``pooling`` is the first pooling of the states, which may be the reason.
        """
        encoder = self._encoder
        # the likely reason follows from counts of these rows alone, not of all rows
        stats = ExtractionStats(rows_made=len(prepared.distinct))
        stats.count_inputs(prepared.inputs)
        reason = stats.likely_reason(
            pooling, encoder.max_length, causal=bool(encoder.acts_causal)
        )
        return DataError(
            f"all {encoder.noun}s have one and the same state in every layer, "
            "though they differ",
            expected="states that differ by more than rounding",
            found=reason.cause,
            where=prepared.where_all,
            hint=reason.remedy,
        )


def _noise(encoded: Encoded, pooling: str) -> Floats:
    """How much a row in a batch differs from the row alone, (L, D).

    Formula: ``sqrt(mean (state in the batch - state alone)²)``, over the rows of the
    proof: a sample of the rows, which is encoded both ways. Both states are those
    before rounding to the storage type.
    """
    before_storage_by_row: dict[int, dict[str, Tensor]] = {}
    for batch in encoded.batches:
        before_storage_by_row |= batch.before_storage
    differences_LD = []
    for row, states_alone in encoded.states_alone.items():
        in_batch_LD = before_storage_by_row[row][pooling].numpy()
        alone_LD = states_alone[pooling][0].numpy()
        differences_LD.append(in_batch_LD - alone_LD)
    squares = np.square(differences_LD, dtype=np.float64)
    noise_LD: Floats = np.sqrt(np.mean(squares, axis=0))
    return noise_LD
