"""From rows to states: made ready, encoded in batches, proven. The one way, whoever asks for them.

A shard proves itself: some of its rows are encoded again, alone, before it is published; what is
compared is what the encoder computed, before it is rounded to the storage type.

N rows, B rows of a batch, L layers, D hidden size.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.common.devices import CopyBack, bits
from gaam_cache.common.errors import (
    DataError,
    GaamWarning,
    NumericsError,
    ShortOfMemoryError,
)
from gaam_cache.encoders.base import Encoder, Inputs
from gaam_cache.extraction.batches import (
    Lengths,
    budget_of,
    padded_tokens,
    token_budget_batches,
)
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.base import DIGEST_BYTES
from gaam_cache.store.dtypes import LARGEST, NUMPY_DTYPES, as_float32, first_not_finite
from gaam_cache.store.plan import BATCHINGS, Batching, Plan
from gaam_cache.store.rounding import UNMOVED, explained, proof_limit, relative
from gaam_cache.store.spread import FEWEST_ROWS, Spread, count_twins

ROWS_PER_PROOF = 500
FEWEST = 2
FEW_ROWS = 8
"""Further rows of one call that are encoded one at a time, at most: on a CPU they take a second of
a small Llama, whose measuring takes ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRows:
    """Rows that are encoded together, made ready: those of a shard, or of a call."""

    inputs: Inputs
    distinct: NDArray[np.bool_]  # (N,): whether a row is the first with its content
    origin: str  # where they are from, for messages
    first: int = 0  # number of the first of them there
    places: Sequence[
        str
    ] = ()  # where each of them stands there; empty: by their numbers

    def where(self, *rows: int) -> str:
        """The place of a row of the piece, counted from 0, or of a first and a last one."""
        found = (
            self.places[row] if self.places else f"row {self.first + row + 1}"
            for row in rows
        )
        return f"{self.origin}, {' to '.join(found)}"


class EncodedBatch(NamedTuple):
    """Rows of a piece and their states."""

    rows: NDArray[np.int64]
    states: dict[str, Tensor]  # pooling -> (B, L, D) in the storage type, on the host
    sums: dict[str, Tensor]  # pooling -> ``_sums`` of the distinct rows
    exact: dict[
        int, dict[str, Tensor]
    ]  # row that proves the piece -> pooling -> (L, D), unrounded


class Encoded(NamedTuple):
    """States of a piece, and those of some of its rows once more."""

    piece: PreparedRows
    batches: list[EncodedBatch]
    alone: dict[
        int, dict[str, Tensor]
    ]  # row -> pooling -> (1, L, D) float32, on the host


class Deviation(NamedTuple):
    """The greatest ``|state - alone| / |alone|`` of a row, and where."""

    share: float
    layer: int  # from 0
    row: int


class StateExtractor:
    """Makes the states of pieces of rows; each stage may run in a thread of its own.

    The batches of whoever began a cache count too: they may have been measured on a device that
    is not ours. ``further`` rows are no cache's, but encoded as those of one.
    """

    def __init__(
        self,
        encoder: Encoder,
        plan: Plan,
        batch_tokens: int | None,
        tally: ExtractionStats,
        *,
        further: bool = False,
    ) -> None:
        self.tally = tally
        self._encoder, self._plan, self._further = encoder, plan, further
        self._batch_tokens = budget_of(batch_tokens, encoder.device.type)
        tally.batching = self._batching
        self._copies = CopyBack(encoder.device)
        self._references: dict[
            str, Tensor
        ] = {}  # pooling -> what rows are counted from
        self._seen: set[bytes] = set()  # content of the rows of small pieces
        self._small: dict[
            str, tuple[Any, int]
        ] = {}  # pooling -> their sums, and how many rows

    @property
    def _batching(self) -> Batching:
        return max(self._plan.batching, self._encoder.batching, key=BATCHINGS.index)

    def prepare(
        self, rows: Sequence[Any], essences: Iterable[bytes], **place: Any
    ) -> PreparedRows:
        """Prepare rows, whose place is that of ``PreparedRows``; DataError where one has nothing.

        Rows of the same content have equal ``essences``.
        """
        distinct_N = self._first_of_each(essences, len(rows))
        piece = PreparedRows(
            inputs=self._encoder.prepare(rows), distinct=distinct_N, **place
        )
        if len(empty := np.flatnonzero(np.asarray(piece.inputs.lengths) == 0)):
            row = int(empty[0])
            raise self._encoder.refuse_empty(rows[row], piece.where(row))
        return piece

    def _first_of_each(self, essences: Iterable[bytes], rows: int) -> NDArray[np.bool_]:
        """Whether each row, (N,), is the first with its content, in small pieces of all of them."""
        seen = self._seen if self._is_small(rows) else set[bytes]()
        distinct_N = np.zeros(rows, np.bool_)
        for row, essence in enumerate(essences):
            digest = hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()
            distinct_N[row] = digest not in seen
            seen.add(digest)
        return distinct_N

    def _is_small(self, rows: int) -> bool:
        """Whether a shard has so few rows that only several tell whether all are one."""
        return rows < FEWEST_ROWS and not self._further

    def encode(self, piece: PreparedRows, tick: Callable[[int], None]) -> Encoded:
        """Pooled states in the storage type, batch by batch; those of some rows also alone.

        On a GPU this returns while the last batches are still being computed and copied. Where its
        memory is too small for a batch, the piece is begun again with half of the tokens a batch,
        and so are those that follow: all rows of a piece are in batches of one budget.
        """
        asked, tally = self._batch_tokens, self.tally
        if self._further:
            longest = int(np.max(piece.inputs.lengths))
            self._encoder.load_for(
                longest, batching="alone" if self._is_few(piece) else None
            )
        while (encoded := self._encode_within(piece, tick)) is None:
            pass
        if self._batch_tokens < asked:
            tally.smaller_batches = now = self._batch_tokens
            said = f"out of memory with batches of {asked:,} tokens: goes on with {now:,}; other "
            said += (
                f"last digits than with the memory (the same: --set batch-tokens={now})"
            )
            warnings.warn(said, GaamWarning, stacklevel=2)
        tally.count_inputs(piece.inputs)
        return encoded

    def _is_few(self, piece: PreparedRows) -> bool:
        """Whether rows are fewer than it takes to pay for measuring what may share a batch.

        They are encoded alone whether or not it was measured: with the same bits every time.
        """
        return self._further and len(piece.inputs.lengths) <= FEW_ROWS

    def _encode_within(
        self, piece: PreparedRows, tick: Callable[[int], None]
    ) -> Encoded | None:
        """All batches; None where one had no memory: nothing is counted, and fewer tokens left."""
        inputs = piece.inputs
        length_N, size_N = np.asarray(inputs.lengths), inputs.sizes
        few = self._is_few(piece)
        batching = "alone" if few else self._batching
        batches = token_budget_batches(
            size_N, self._batch_tokens, batching, inputs.extents
        )
        chosen = choose_rows(length_N, batches)
        encoded, tally, done = Encoded(piece, [], {}), self.tally, 0
        before = tally.rows_made, tally.tokens, tally.padded_tokens
        for batch, items in zip(batches, inputs.batches(batches), strict=True):
            distinct_B = piece.distinct[batch]
            encode = partial(
                self._encode_batch, items, batch, chosen, distinct_B, as_alone=few
            )
            made = self._attempt(encode, piece, batch.tolist())
            if made is None:
                tally.rows_made, tally.tokens, tally.padded_tokens = before
                tokens = int(size_N[batch].max()) * len(
                    batch
                )  # the batch is cut in two at least
                self._batch_tokens = max(1, min(self._batch_tokens, tokens) // 2)
                return None
            encoded.batches.append(made)
            done += len(batch)
            tally.rows_made += len(batch)
            tally.tokens += int(length_N[batch].sum())
            tally.padded_tokens += padded_tokens(size_N, [batch])
            tick(done)
        for row in chosen:
            encode_alone = partial(self._encoder.encode_alone, inputs.items[row])
            pooled = self._attempt(encode_alone, piece, [row])
            encoded.alone[row] = {
                name: self._copies.start(x) for name, x in pooled.items()
            }
        return encoded

    def _attempt(
        self, encode: Callable[[], Any], piece: PreparedRows, rows: Sequence[int]
    ) -> Any:
        """What ``encode`` makes of rows; None where there is no memory for several."""
        try:
            return encode()
        except Exception as error:
            if not devices.out_of_memory(error):
                raise
            said = devices.memory_message(error)
        # not before here: an exception that is handled holds all tensors of where it came from
        devices.give_back(self._encoder.device)
        if len(rows) > 1:
            return None
        raise ShortOfMemoryError(
            "the memory of the device is too small for one row",
            found=said,
            where=piece.where(rows[0]),
            hint="a smaller --max-length, another --device, --dtype bfloat16, or device-map auto",
        )

    def _encode_batch(
        self,
        items: Sequence[Any],
        batch: NDArray[np.int64],
        chosen: list[int],
        distinct_B: NDArray[np.bool_],
        *,
        as_alone: bool,
    ) -> EncodedBatch:
        """On their way to the host, in the storage type."""
        dtype, start = getattr(torch, self._plan.storage_dtype), self._copies.start
        encoded = EncodedBatch(
            batch, {}, {}, {row: {} for row in chosen if row in batch}
        )
        encoder = self._encoder
        pooled = encoder.encode_alone(items[0]) if as_alone else encoder.encode(items)
        for name, x_BLD in pooled.items():
            stored_BLD = x_BLD.to(dtype)
            encoded.states[name] = start(stored_BLD)
            # a mean: from a row unlike all others, differences would have few digits left
            reference_LD = self._references.setdefault(name, x_BLD.mean(0))
            encoded.sums[name] = start(
                _sums(x_BLD, stored_BLD, reference_LD, distinct_B)
            )
            for row, exact in encoded.exact.items():
                exact[name] = start(x_BLD[int((batch == row).argmax())].clone())
        return encoded

    def wait(self) -> None:
        """Wait for all that was encoded to be on the host."""
        self._copies.wait()

    def states(self, encoded: Encoded) -> dict[str, NDArray[Any]]:
        """What was encoded, in the order of the rows: pooling -> (N, L, D) in the storage type.

        bfloat16, which NumPy lacks, comes as its bits. All is finite, and some of it proven.
        """
        self.wait()
        states = {name: self._assemble(encoded, name) for name in self._plan.pooling}
        self._prove(encoded, states)
        computed = {
            row: x for batch in encoded.batches for row, x in batch.exact.items()
        }
        self._check_spreads(encoded, states, computed)
        return states

    def _prove(self, encoded: Encoded, states: Mapping[str, NDArray[Any]]) -> None:
        """Compare some rows with what they are alone; NumericsError where rounding is not why."""
        plan, limit = self._plan, proof_limit(self._encoder.dtype)
        bad: list[Deviation] = []
        for batch in encoded.batches:
            for row in batch.exact:
                found = worst_deviation(
                    states, batch, encoded.alone, row, plan.storage_dtype
                )
                self.tally.deviation = max(self.tally.deviation, found.share)
                if not found.share <= limit and not self._is_rounding(
                    encoded, batch, found
                ):
                    bad.append(found)
        self.tally.proven += len(encoded.alone)
        if not bad:
            return
        worst = max(bad, key=lambda one: one.share)
        hint = "encode every text alone: gaam_decoder.load(RUN, batch_tokens=1)"
        if not self._further:
            hint = "extract into another --out with --set batch-tokens=1, which encodes every "
            hint += "row alone; rows of this folder may be wrong, too"
        raise NumericsError(
            "a text has another state in its batch than alone; nothing was made of it",
            expected=f"at most {limit:.1e} of the layer's norm apart: what rounding explains",
            found=f"{worst.share:.1e} in layer {worst.layer + plan.first_layer}",
            where=encoded.piece.where(worst.row),
            hint=hint,
        )

    def _is_rounding(
        self, encoded: Encoded, batch: EncodedBatch, found: Deviation
    ) -> bool:
        """Whether the batch moves nothing of a row in higher precision, which is near enough.

        Massive activations of a few tokens amplify the rounding of the kernels of a batch.
        """
        if not math.isfinite(found.share):
            return False
        items = encoded.piece.inputs.batch(batch.rows)
        exact = self._encoder.exact(items, int((batch.rows == found.row).argmax()))
        if exact is None:
            return False
        dtype, (in_batch, alone) = self._encoder.dtype, exact
        for name, x_LD in batch.exact[found.row].items():
            rounded = encoded.alone[found.row][name][0].numpy()
            if not relative(in_batch[name], alone[name]).max() <= UNMOVED[dtype]:
                return False
            if not explained(x_LD.numpy(), rounded, alone[name], proof_limit(dtype)):
                return False
        return True

    def _check_spreads(
        self,
        encoded: Encoded,
        states: Mapping[str, NDArray[Any]],
        computed: Mapping[int, Mapping[str, Tensor]],
    ) -> None:
        """Refuse rows that are all one, and a layer that rounding takes away; count the others."""
        plan, piece, tally = self._plan, encoded.piece, self.tally
        small, where = (
            self._is_small(len(piece.distinct)),
            piece.where(0, len(piece.distinct) - 1),
        )
        different = False
        for name, states_NLD in states.items():
            spread = self._spread(encoded, name)
            apart = [
                computed[row][name].numpy() - alone[name][0].numpy()
                for row, alone in encoded.alone.items()
            ]
            noise_LD = np.sqrt(np.mean(np.square(apart, dtype=np.float64), axis=0))
            flat_L = spread.flat(noise_LD, self._encoder.dtype)
            different |= spread.rows < FEWEST_ROWS or not flat_L.all()
            if spread.rows >= FEWEST_ROWS:
                for layer in np.flatnonzero(flat_L).tolist():
                    place = f"{name}, layer {layer + plan.first_layer}"
                    tally.flat[place] = tally.flat.get(place, 0) + 1
            if not self._further:  # else the decoders learned from such states
                lost = spread.check_digits(
                    plan.storage_dtype,
                    flat_L,
                    first_layer=plan.first_layer,
                    where=where,
                )
                for layer, told in lost.items():
                    tally.coarse.setdefault(f"{name}, layer {layer}", told)
            if not small and not self._further:
                distinct_NLD = states_NLD[piece.distinct]
                if plan.storage_dtype == "bfloat16":
                    distinct_NLD = as_float32(distinct_NLD)
                alike = count_twins(distinct_NLD, spread, flat_L, noise_LD)
                tally.twins[name] = tally.twins.get(name, 0) + alike
        if not small:
            tally.distinct += int(piece.distinct.sum())
        if not different and not self._further:
            raise self._refuse_one_state(piece, next(iter(states)))

    def _spread(self, encoded: Encoded, pooling: str) -> Spread:
        """Of the distinct rows of a piece; of one of few rows, with those before it."""
        distinct_N = encoded.piece.distinct
        batches = [batch.sums[pooling].numpy() for batch in encoded.batches]
        sums_4LD: Any = np.sum(batches, axis=0, dtype=np.float64)
        rows = int(distinct_N.sum())
        if self._is_small(len(distinct_N)):
            before_4LD, rows_before = self._small.get(pooling, (0.0, 0))
            sums_4LD, rows = sums_4LD + before_4LD, rows + rows_before
            self._small[pooling] = sums_4LD, rows
        return Spread.of(sums_4LD, self._references[pooling].cpu().numpy(), rows)

    def _refuse_one_state(self, piece: PreparedRows, pooling: str) -> DataError:
        """What to say where all rows are one."""
        encoder, counts = self._encoder, ExtractionStats(rows_made=len(piece.distinct))
        counts.count_inputs(piece.inputs)
        reason = counts.likely_reason(
            pooling, encoder.max_length, causal=bool(encoder.acts_causal)
        )
        return DataError(
            f"all {encoder.noun}s have one and the same state in every layer, though they differ",
            expected="states that differ by more than rounding",
            found=reason.cause,
            where=piece.where(0, len(piece.distinct) - 1),
            hint=reason.remedy,
        )

    def _assemble(self, encoded: Encoded, pooling: str) -> NDArray[Any]:
        """States of one pooling, (N, L, D), as NumPy sees them; all finite."""
        plan, dtype = self._plan, self._plan.storage_dtype
        piece, batches = encoded.piece, encoded.batches
        shape = (len(piece.inputs.lengths), plan.num_layers, plan.hidden_size)
        states = np.empty(shape, dtype=NUMPY_DTYPES[dtype])
        for batch in batches:
            states[batch.rows] = bits(batch.states[pooling])
        if (bad := first_not_finite(states, dtype)) is not None:
            row, layer, feature = bad[0], bad[1] + plan.first_layer, bad[2]
            what = f"the encoder's layer {layer} yields numbers that are not finite"
            hint = "look at the row, or compute in --dtype float32 with a new --out"
            # the others reach as far as the encoder's arithmetic; rounding makes no NaN
            if dtype == "float16" and np.isinf(states[bad]):
                what = f"a state of layer {layer} cannot be stored as {dtype}"
                hint = "--storage-dtype float32 and a new --out"
            raise NumericsError(
                what,
                expected=f"finite values up to {LARGEST[dtype]:g}",
                found=f"another in feature {feature}",
                where=piece.where(row),
                hint="leave the row out" if self._further else hint,
            )
        return states


def _sums(
    x_BLD: Tensor,
    stored_BLD: Tensor,
    reference_LD: Tensor,
    distinct_B: NDArray[np.bool_],
) -> Tensor:
    """What ``Spread.of`` reads of the distinct rows of a batch, (4, L, D), on its device."""
    weight_B = torch.from_numpy(distinct_B).to(x_BLD.device, x_BLD.dtype)
    layers = []
    # one layer at a time: of all at once there may be no room for copies
    for x_BD, stored_BD, reference_D in zip(
        x_BLD.unbind(1), stored_BLD.unbind(1), reference_LD, strict=True
    ):
        moved_BD = x_BD - reference_D
        error_BD = stored_BD.to(x_BD.dtype) - x_BD
        sums = [
            weight_B @ y
            for y in (moved_BD, moved_BD.square(), error_BD, error_BD.square())
        ]
        layers.append(torch.stack(sums))
    return torch.stack(layers, 1)


def choose_rows(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> list[int]:
    """Which rows of a shard prove it: one in 500, at least two, the same at every attempt.

    First the shortest row of the batch with the longest, around which padding is greatest; the
    others are spread evenly over the rows in order of their length.
    """
    length_N = np.asarray(lengths)
    count = min(len(length_N), max(FEWEST, -(-len(length_N) // ROWS_PER_PROOF)))
    most = batches[int(np.argmax([np.ptp(length_N[batch]) for batch in batches]))]
    first = int(most[length_N[most].argmin()])
    by_length = np.argsort(length_N, kind="stable")
    others = by_length[by_length != first].tolist()
    ends = (0, len(others) - 1) if count > 2 else (len(others) // 2,) * 2
    steps = np.linspace(*ends, count - 1).round().astype(int)
    return [first, *(others[step] for step in steps)]


def worst_deviation(
    states: Mapping[str, NDArray[Any]],
    batch: EncodedBatch,
    alone: Mapping[int, Mapping[str, Tensor]],
    row: int,
    storage_dtype: str,
) -> Deviation:
    """Of the layers of a row that which is furthest from its states alone.

    Infinitely far where what is to be stored, (N, L, D), is not the state rounded that came out of
    the row's batch, (L, D).
    """
    worst = Deviation(0.0, 0, row)
    for name, x_LD in batch.exact[row].items():
        share_L = relative(x_LD.numpy(), alone[row][name][0].numpy())
        stored_LD = bits(x_LD.to(getattr(torch, storage_dtype)))
        share_L[(states[name][row] != stored_LD).any(axis=-1)] = math.inf
        layer = int(share_L.argmax())
        worst = max(worst, Deviation(float(share_L[layer]), layer, row))
    return worst
