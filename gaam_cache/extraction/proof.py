"""The proof of a shard: some rows are encoded again, alone, before it is published.

The proof compares the states of a row in its batch and alone, both before they are
rounded to the storage type.

N rows, L layers, D hidden size.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common.devices import to_numpy
from gaam_cache.common.errors import NumericsError
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.batches import Lengths
from gaam_cache.extraction.encoded import Encoded, EncodedBatch
from gaam_cache.store.plan import Plan
from gaam_cache.store.rounding import (
    PRECISE_SHIFT_LIMIT,
    deviation_limit,
    is_within_rounding,
    relative_deviation,
)

ROWS_PER_PROOF = 500  # one of so many rows is encoded again
FEWEST_PROOF_ROWS = 2


class Deviation(NamedTuple):
    """The largest deviation of a row in its batch from the row alone, over its layers.

    The relative deviation comes first, so that ``max`` of several is the largest one.
    """

    relative: float  # ``|state - state alone| / |state alone|``
    layer: int  # in which it is largest, from 0
    row: int  # number of the row among the prepared rows


def choose_proof_rows(
    lengths: Lengths, batches: Sequence[NDArray[np.int64]]
) -> list[int]:
    """Choose the rows of the proof, which are encoded again alone: one in 500.

    At least two rows are chosen, if there are two. The first is the shortest row of the
    batch with the longest padding. The others are at equal distances in the order of
    the lengths; a single other row is of median length. The same lengths and batches
    give the same rows.

    Args:
        lengths: tokens of every row.
        batches: numbers of the rows of every batch.

    Returns:
        Numbers of the chosen rows.
    """
    length_N = np.asarray(lengths)
    num_rows = len(length_N)
    # -(-a // b) is a / b, rounded up
    share_of_rows = -(-num_rows // ROWS_PER_PROOF)
    num_proof_rows = min(num_rows, max(FEWEST_PROOF_ROWS, share_of_rows))

    # if padding moves states at all, it moves most a short row among long ones
    paddings = [np.ptp(length_N[batch]) for batch in batches]
    most_padded_batch = batches[int(np.argmax(paddings))]
    shortest = length_N[most_padded_batch].argmin()
    most_padded_row = int(most_padded_batch[shortest])

    # positions of the other rows in the order of the lengths: from the shortest to the
    # longest, or the middle for a single other row
    order_N = np.argsort(length_N, kind="stable")
    candidates = order_N[order_N != most_padded_row].tolist()
    if num_proof_rows > 2:
        first_position = 0
        last_position = len(candidates) - 1
    else:
        first_position = len(candidates) // 2
        last_position = first_position
    positions = np.linspace(first_position, last_position, num_proof_rows - 1)
    other_rows = [candidates[position] for position in positions.round().astype(int)]
    return [most_padded_row, *other_rows]


def check_proof(
    encoded: Encoded,
    states: Mapping[str, NDArray[Any]],
    encoder: Encoder,
    plan: Plan,
    *,
    for_prediction: bool,
) -> float:
    """Check that batching changed no row of the proof beyond rounding.

    The rows of the proof are a sample. The encoder read each of them in its batch, and
    once more by itself.

    Args:
        encoded: the rows, with the states of the sample when encoded alone.
        states: the states to be stored, pooling -> (N, L, D).
        encoder: the encoder of the rows.
        plan: of the cache.
        for_prediction: whether the rows are those of a prediction, and no part of the
            cache; only the message of the error depends on this.

    Returns:
        The largest relative deviation of the proof's rows in a layer, whether rounding
        explains it or not.

    Raises:
        NumericsError: a row deviates by more than rounding explains.
    """
    # judge every row, so that the message names the worst one
    limit = deviation_limit(encoder.dtype)
    largest_deviation = 0.0
    refused: list[Deviation] = []
    for batch in encoded.batches:
        # the batch's rows of the proof, with their states before they are rounded
        for row in batch.before_storage:
            deviation = worst_deviation(
                states, batch, encoded.states_alone, row, plan.storage_dtype
            )
            largest_deviation = max(largest_deviation, deviation.relative)
            if deviation.relative <= limit:
                continue
            # above the limit higher precision decides, which takes time
            if not _rounding_explains(encoded, batch, deviation, encoder):
                refused.append(deviation)
    if refused:
        worst = max(refused, key=lambda deviation: deviation.relative)
        raise _deviation_error(
            encoded, worst, limit, plan, for_prediction=for_prediction
        )
    return largest_deviation


def _deviation_error(
    encoded: Encoded,
    worst: Deviation,
    limit: float,
    plan: Plan,
    *,
    for_prediction: bool,
) -> NumericsError:
    """The error for a row whose state in its batch is not its state alone.

    Args:
        encoded: the rows.
        worst: the largest deviation of a refused row.
        limit: largest deviation that rounding usually explains.
        plan: of the cache.
        for_prediction: whether the rows are those of a prediction, and no part of the
            cache; the hint differs.
    """
    if for_prediction:
        hint = "encode every text alone: gaam_decoder.load(RUN, batch_tokens=1)"
    else:
        hint = (
            "extract into another --out with --set batch-tokens=1, which encodes every "
            "row alone; rows of this folder may be wrong, too"
        )
    return NumericsError(
        "a text has another state in its batch than alone; nothing was made of it",
        expected=(
            f"at most {limit:.1e} of the layer's norm apart, which rounding explains"
        ),
        found=f"{worst.relative:.1e} in layer {worst.layer + plan.first_layer}",
        where=encoded.prepared.where(worst.row),
        hint=hint,
    )


def _rounding_explains(
    encoded: Encoded, batch: EncodedBatch, deviation: Deviation, encoder: Encoder
) -> bool:
    """Whether rounding explains a deviation above the limit.

    A few tokens with massive activations amplify the rounding of a batch. So the batch
    is computed once more in higher precision. Two conditions must hold in every layer:

    1. In higher precision the row has the same state in the batch and alone.
    2. In the usual precision the state in the batch is about as near to this precise
       state as the state alone is.

    Args:
        encoded: the rows, and the states of the proof's rows, encoded alone.
        batch: the batch that holds the deviating row.
        deviation: the deviation of that row.
        encoder: the encoder of the rows. If it has no higher precision, or too little
            memory for it, the answer is no.
    """
    if not math.isfinite(deviation.relative):
        return False
    row = deviation.row
    items = encoded.prepared.inputs.batch(batch.rows)
    precise_states = encoder.states_in_higher_precision(items, batch.index_of(row))
    if precise_states is None:
        return False

    dtype = encoder.dtype
    for pooling, in_batch_LD in batch.before_storage[row].items():
        # in higher precision padding and neighbours must move nothing
        precise_alone_LD = precise_states.alone[pooling]
        moved_L = relative_deviation(precise_states.in_batch[pooling], precise_alone_LD)
        # 'not <=' also refuses NaN, which '>' would let pass
        if not moved_L.max() <= PRECISE_SHIFT_LIMIT[dtype]:
            return False
        # in the usual precision the batch must be about as precise as the row alone
        [alone_LD] = encoded.states_alone[row][pooling].numpy()
        if not is_within_rounding(
            in_batch_LD.numpy(), alone_LD, precise_alone_LD, deviation_limit(dtype)
        ):
            return False
    return True


def worst_deviation(
    states: Mapping[str, NDArray[Any]],
    batch: EncodedBatch,
    states_alone: Mapping[int, Mapping[str, Tensor]],
    row: int,
    storage_dtype: str,
) -> Deviation:
    """The largest deviation of a row from its state alone, over poolings and layers.

    Rows of the proof are encoded twice: in a batch, and alone. This also checks that
    the states to be stored are those of the batch, rounded, in the right row: if not,
    the deviation is infinite.

    Args:
        states: the states to be stored, pooling -> (N, L, D).
        batch: the batch of the row.
        states_alone: row -> pooling -> (1, L, D), of rows encoded alone.
        row: number of the row, which is a row of the proof.
        storage_dtype: type of ``states``.
    """
    worst = Deviation(0.0, 0, row)
    for pooling, in_batch_LD in batch.before_storage[row].items():
        alone_LD = states_alone[row][pooling][0]
        deviation_L = relative_deviation(in_batch_LD.numpy(), alone_LD.numpy())
        rounded_LD = to_numpy(in_batch_LD.to(getattr(torch, storage_dtype)))
        is_other_row_L = (states[pooling][row] != rounded_LD).any(axis=-1)
        deviation_L[is_other_row_L] = math.inf
        layer = int(deviation_L.argmax())
        worst = max(worst, Deviation(float(deviation_L[layer]), layer, row))
    return worst
