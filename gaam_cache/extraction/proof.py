"""The proof of a shard: some rows are encoded again, alone, before it is published.

The proof compares what the encoder computed, before it is rounded to the storage type.

N rows, L layers, D hidden size.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common.devices import bits
from gaam_cache.common.errors import NumericsError
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.batches import Lengths
from gaam_cache.extraction.encoded import Encoded, EncodedBatch
from gaam_cache.store.plan import Plan
from gaam_cache.store.rounding import (
    UNMOVED,
    is_within_rounding,
    proof_limit,
    relative_deviation,
)

ROWS_PER_PROOF = 500  # one of so many rows is encoded again
FEWEST_PROOFS = 2


class Deviation(NamedTuple):
    """The largest ``|state - alone| / |alone|`` of a row, and where it is."""

    share: float
    layer: int  # from 0
    row: int


def choose_rows(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> list[int]:
    """Choose the rows of the proof: one in 500, at least two, always the same.

    The first is the shortest row of the batch with the longest padding. The others are
    at equal distances in the order of the lengths.
    """
    length_N = np.asarray(lengths)
    total = len(length_N)
    count = min(total, max(FEWEST_PROOFS, -(-total // ROWS_PER_PROOF)))

    # padding moves the shortest row among long ones most
    paddings = [np.ptp(length_N[batch]) for batch in batches]
    most_padded = batches[int(np.argmax(paddings))]
    first = int(most_padded[length_N[most_padded].argmin()])

    by_length = np.argsort(length_N, kind="stable")
    candidates = by_length[by_length != first].tolist()
    # one other row is of median length; several are from the shortest to the longest
    if count > 2:
        start = 0
        stop = len(candidates) - 1
    else:
        start = stop = len(candidates) // 2
    steps = np.linspace(start, stop, count - 1).round().astype(int)
    return [first, *(candidates[step] for step in steps)]


def check_proof(
    encoded: Encoded,
    states: Mapping[str, NDArray[Any]],
    encoder: Encoder,
    plan: Plan,
    *,
    outside_cache: bool,
) -> float:
    """Compare the rows of the proof with their states alone.

    Args:
        encoded: the rows.
        states: what is to be stored, pooling -> (N, L, D).
        encoder: of the rows.
        plan: of their cache.
        outside_cache: whether these rows are no part of a cache.

    Returns:
        The largest deviation.

    Raises:
        NumericsError: a row deviates by more than rounding explains.
    """
    # judge every row, so that the message names the worst one
    limit = proof_limit(encoder.dtype)
    largest = 0.0
    refused: list[Deviation] = []
    for batch in encoded.batches:
        for row in batch.exact:
            deviation = worst_deviation(
                states, batch, encoded.alone, row, plan.storage_dtype
            )
            largest = max(largest, deviation.share)
            if deviation.share <= limit:
                continue
            if not _is_rounding(encoded, batch, deviation, encoder):
                refused.append(deviation)
    if refused:
        raise _refusal(encoded, refused, limit, plan, outside_cache=outside_cache)
    return largest


def _refusal(
    encoded: Encoded,
    refused: Sequence[Deviation],
    limit: float,
    plan: Plan,
    *,
    outside_cache: bool,
) -> NumericsError:
    """The error for rows whose states are not those of the rows alone."""
    worst = max(refused, key=lambda deviation: deviation.share)
    hint = "encode every text alone: gaam_decoder.load(RUN, batch_tokens=1)"
    if not outside_cache:
        hint = (
            "extract into another --out with --set batch-tokens=1, which encodes every "
            "row alone; rows of this folder may be wrong, too"
        )
    return NumericsError(
        "a text has another state in its batch than alone; nothing was made of it",
        expected=(
            f"at most {limit:.1e} of the layer's norm apart, which rounding explains"
        ),
        found=f"{worst.share:.1e} in layer {worst.layer + plan.first_layer}",
        where=encoded.prepared.where(worst.row),
        hint=hint,
    )


def _is_rounding(
    encoded: Encoded, batch: EncodedBatch, deviation: Deviation, encoder: Encoder
) -> bool:
    """Whether rounding explains a deviation above the limit.

    A few tokens with massive activations amplify the rounding of a batch. In higher
    precision the batch must move the row by nothing, and the row must be near enough to
    its state there.
    """
    if not math.isfinite(deviation.share):
        return False
    row = deviation.row
    items = encoded.prepared.inputs.batch(batch.rows)
    exact = encoder.exact(items, batch.index_of(row))
    if exact is None:
        return False

    # in higher precision padding and neighbours must move nothing
    exact_in_batch, exact_alone = exact
    dtype = encoder.dtype
    for pooling, x_LD in batch.exact[row].items():
        moved_L = relative_deviation(exact_in_batch[pooling], exact_alone[pooling])
        # written so that a deviation that is no number is refused
        if not moved_L.max() <= UNMOVED[dtype]:
            return False
        # and the row must be about as near to its exact state as it is alone
        alone_LD = encoded.alone[row][pooling][0].numpy()
        if not is_within_rounding(
            x_LD.numpy(), alone_LD, exact_alone[pooling], proof_limit(dtype)
        ):
            return False
    return True


def worst_deviation(
    states: Mapping[str, NDArray[Any]],
    batch: EncodedBatch,
    alone: Mapping[int, Mapping[str, Tensor]],
    row: int,
    storage_dtype: str,
) -> Deviation:
    """The layer in which a row is furthest from its state alone.

    The deviation is infinite where ``states``, which are to be stored, do not hold the
    rounded state of the batch: the row changed its place on the way.
    """
    worst = Deviation(0.0, 0, row)
    for pooling, x_LD in batch.exact[row].items():
        share_L = relative_deviation(x_LD.numpy(), alone[row][pooling][0].numpy())
        rounded_LD = bits(x_LD.to(getattr(torch, storage_dtype)))
        is_wrong_L = (states[pooling][row] != rounded_LD).any(axis=-1)
        share_L[is_wrong_L] = math.inf
        layer = int(share_L.argmax())
        worst = max(worst, Deviation(float(share_L[layer]), layer, row))
    return worst
