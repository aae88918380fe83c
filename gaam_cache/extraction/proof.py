"""A shard proves itself: some of its rows are encoded again, alone, before it is published.

What is compared is what the encoder computed, before it is rounded to the storage type.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import NumericsError
from gaam_cache.extraction.batching import Lengths
from gaam_cache.store.plan import Batching

ROWS_PER_PROOF = 500
FEWEST = 2


class Deviation(NamedTuple):
    """How far a state is from that of its text alone."""

    share: float
    """``|state - alone| / |alone|``; infinite where what was stored is not that state."""
    layer: int
    """From 0."""
    row: int
    """In the shard, from 0."""


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


def as_numbers(stored: NDArray[Any], storage_dtype: str) -> NDArray[Any]:
    """States as they were stored, in a type that NumPy can compute with."""
    if storage_dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored


def unproven(
    found: Deviation,
    limit: float,
    batching: Batching,
    where: str,
    *,
    first_layer: int,
    further: bool,
) -> NumericsError:
    """What is said where a shard fails its proof, or ``further`` rows do that are in none."""
    hint = "look at the machine: the same text gave two different states"
    if batching != "alone":
        hint = "encode every text alone, with --set batch-tokens=1"
        if not further:
            hint = f"delete this folder (rows that were not tried may be wrong too) and {hint}"
    what = "nothing was made of it" if further else "the shard was not published"
    return NumericsError(
        f"a text has another state in its batch than alone; {what}",
        expected=f"at most {limit:.1e} of the layer's norm apart: what rounding explains",
        found=f"{found.share:.1e} in layer {found.layer + first_layer}",
        where=where,
        hint=hint,
    )
