"""Checks that rows of different content have different states.

All rows of a shard may have the same state in a layer, or the storage type may round
their differences away. Two rows may also be twins: their content differs, their states
do not.

N rows, B rows of a batch, L layers, D hidden size.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common.errors import DataError
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.encoded import Encoded, PreparedRows
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.base import DIGEST_BYTES
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import Plan
from gaam_cache.store.spread import FEWEST_ROWS, Spread, count_twins

Floats = NDArray[np.float64]


class SpreadCheck:
    """Measures how much the states of rows differ, in every shard.

    A shard of very few rows does not show whether all states are the same. So small
    shards are measured together. With ``outside_cache`` the check never refuses rows:
    the decoders have learned from such states already.
    """

    def __init__(
        self,
        encoder: Encoder,
        plan: Plan,
        stats: ExtractionStats,
        *,
        outside_cache: bool,
    ) -> None:
        self._encoder = encoder
        self._plan = plan
        self._stats = stats
        self._outside_cache = outside_cache
        self._references: dict[str, Tensor] = {}  # pooling -> (L, D)
        self._small_digests: set[bytes] = set()  # of the rows of small shards
        self._small_sums: dict[str, tuple[Floats, int]] = {}
        """Pooling -> sums over the rows of small shards, and how many rows."""

    def mark_distinct(
        self, essences: Iterable[bytes], num_rows: int
    ) -> NDArray[np.bool_]:
        """Whether each row, (N,), is the first with its content.

        Rows of the same content have equal ``essences``. A row is compared with the
        rows of its shard, and where the shard is small with those of all small shards.
        """
        digests = set[bytes]()
        if self._is_small(num_rows):
            digests = self._small_digests
        distinct_N = np.zeros(num_rows, np.bool_)
        for row, essence in enumerate(essences):
            # a digest is kept instead of the row, which may be a whole sound
            digest = hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()
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
        """Sums over the distinct rows of a batch, as ``Spread.from_sums`` takes them.

        Shape:
            x_BLD: states. stored_BLD: the same states in the storage type. distinct_B:
            whether a row is the first with its content. Result: (4, L, D), on the
            device of the states.
        """
        # sums are of distances from the mean of the first batch: distances from a row
        # unlike all others would leave few digits for the differences
        if pooling not in self._references:
            self._references[pooling] = x_BLD.mean(0)
        weight_B = torch.from_numpy(distinct_B).to(x_BLD.device, x_BLD.dtype)

        sums_of_layers = []
        # one layer at a time: the device may have no room for copies of all layers
        for x_BD, stored_BD, reference_D in zip(
            x_BLD.unbind(1),
            stored_BLD.unbind(1),
            self._references[pooling],
            strict=True,
        ):
            moved_BD = x_BD - reference_D
            error_BD = stored_BD.to(x_BD.dtype) - x_BD
            summands = (moved_BD, moved_BD.square(), error_BD, error_BD.square())
            sums_4D = torch.stack([weight_B @ y_BD for y_BD in summands])
            sums_of_layers.append(sums_4D)
        return torch.stack(sums_of_layers, 1)

    def check(self, encoded: Encoded, states: Mapping[str, NDArray[Any]]) -> None:
        """Refuse states that are the same in all rows; count what is suspicious.

        Args:
            encoded: the rows.
            states: what is to be stored, pooling -> (N, L, D).

        Raises:
            DataError: all rows have the same state in every layer.
            NumericsError: the storage type rounds the differences of a layer away.
        """
        prepared = encoded.prepared
        is_small = self._is_small(len(prepared.distinct))
        is_any_different = False
        for pooling, states_NLD in states.items():
            spread = self._spread(encoded, pooling)
            noise_LD = _noise(encoded, pooling)
            flat_L = spread.flat_layers(noise_LD, self._encoder.dtype)
            # a few rows may have the same state by chance
            has_enough_rows = spread.rows >= FEWEST_ROWS
            if not has_enough_rows or not flat_L.all():
                is_any_different = True
            if has_enough_rows:
                self._count_flat(pooling, flat_L)
            # the decoders have learned from such states: it is too late to refuse them
            if self._outside_cache:
                continue
            self._check_digits(pooling, spread, flat_L, prepared)
            if not is_small:
                distinct_NLD = states_NLD[prepared.distinct]
                self._count_twins(pooling, distinct_NLD, spread, flat_L, noise_LD)

        if not is_small:
            self._stats.distinct += int(prepared.distinct.sum())
        if not is_any_different and not self._outside_cache:
            raise self._same_state_error(prepared, next(iter(states)))

    def _is_small(self, num_rows: int) -> bool:
        """Whether a shard has too few rows to show whether their states differ."""
        return num_rows < FEWEST_ROWS and not self._outside_cache

    def _spread(self, encoded: Encoded, pooling: str) -> Spread:
        """Spread of the distinct rows of a shard.

        For a small shard it is the spread over all small shards so far.
        """
        distinct_N = encoded.prepared.distinct
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

    def _count_flat(self, pooling: str, flat_L: NDArray[np.bool_]) -> None:
        """Count the layers, flat_L, in which all rows have the same state."""
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
        """Refuse layers that rounding destroys; record layers that lose some digits."""
        losses = spread.check_storage_precision(
            self._plan.storage_dtype,
            flat_L,
            first_layer=self._plan.first_layer,
            where=prepared.where_all,
        )
        for layer, loss in losses.items():
            self._stats.coarse.setdefault(f"{pooling}, layer {layer}", loss)

    def _count_twins(
        self,
        pooling: str,
        distinct_NLD: NDArray[Any],
        spread: Spread,
        flat_L: NDArray[np.bool_],
        noise_LD: Floats,
    ) -> None:
        """Count the distinct rows that have the state of another row."""
        if self._plan.storage_dtype == "bfloat16":
            distinct_NLD = as_float32(distinct_NLD)
        twins = count_twins(distinct_NLD, spread, flat_L, noise_LD)
        self._stats.twins[pooling] = self._stats.twins.get(pooling, 0) + twins

    def _same_state_error(self, prepared: PreparedRows, pooling: str) -> DataError:
        """The error for rows that all have the same state in every layer."""
        encoder = self._encoder
        # counts of these rows alone give the reason
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
    """How much a row alone differs from itself in a batch, (L, D).

    This is the root mean square of the differences of the rows of the proof.
    """
    unrounded_by_row: dict[int, dict[str, Tensor]] = {}
    for batch in encoded.batches:
        unrounded_by_row |= batch.unrounded
    differences_LD = []
    for row, states_alone in encoded.states_alone.items():
        in_batch_LD = unrounded_by_row[row][pooling].numpy()
        alone_LD = states_alone[pooling][0].numpy()
        differences_LD.append(in_batch_LD - alone_LD)
    squares = np.square(differences_LD, dtype=np.float64)
    noise_LD: Floats = np.sqrt(np.mean(squares, axis=0))
    return noise_LD
