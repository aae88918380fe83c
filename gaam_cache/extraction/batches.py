"""Batches of rows of similar length, as cheap as a limit of tokens allows.

These are pure functions of the lengths and the limit.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gaam_cache.store.plan import Batching

Lengths = Sequence[int] | NDArray[np.int64]
BATCH_COST_TOKENS = 64
"""What one more batch costs beside its tokens (launching, Python), in tokens; on a CPU
MiniLM costs 15 to 60."""


def token_budget_batches(
    lengths: Lengths,
    batch_tokens: int,
    batching: Batching = "padded",
    extents: Lengths | None = None,
) -> list[NDArray[np.int64]]:
    """Split rows into the batches that cost least under a limit of tokens.

    Rows are sorted by length, longest first, so that a batch that is too large for the
    memory comes first. Dynamic programming decides where to cut. It minimises the
    padded positions plus ``BATCH_COST_TOKENS`` per batch.

    Args:
        lengths: tokens of every row.
        batch_tokens: most tokens of a batch: its rows times its longest row. A longer
            row has a batch of its own.
        batching: which rows may share a batch.
        extents: decides whether two rows are of equal length, where tokens do not.

    Returns:
        Arrays of row numbers; together they hold every row once.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    extent_N = length_N
    if extents is not None:
        extent_N = np.asarray(extents, dtype=np.int64)

    order_N = np.argsort(-extent_N, kind="stable")
    sorted_length_N = np.maximum(length_N[order_N], 1)
    compared_N = sorted_length_N
    if batching == "equal lengths" and extents is not None:
        compared_N = extent_N[order_N]
    start_of = _cheapest_starts(sorted_length_N, compared_N, batch_tokens, batching)

    # read the cuts from the last batch to the first
    batches = []
    stop = len(order_N)
    while stop:
        start = int(start_of[stop])
        batches.append(order_N[start:stop])
        stop = start
    return batches[::-1]


def _cheapest_starts(
    length_N: NDArray[np.int64],
    compared_N: NDArray[np.int64],
    batch_tokens: int,
    batching: Batching,
) -> NDArray[np.int64]:
    """For every end of a batch, (N + 1,), the cheapest start of this batch.

    Among the batches whose longest rows are of one length and that end at the same row,
    the one with most rows is the cheapest. So every end has one candidate for each
    length, and the work is linear in the rows for each length.

    Args:
        length_N: tokens of the sorted rows, longest first.
        compared_N: which of them count as of equal length.
        batch_tokens: most tokens of a batch.
        batching: which rows may share a batch.
    """
    count = len(length_N)
    cost = np.full(count + 1, np.iinfo(np.int64).max)  # of the first i rows, in tokens
    cost[0] = 0
    start_of = np.zeros(count + 1, dtype=np.int64)
    for first, stop in _equal_runs(compared_N):
        length = int(length_N[first])
        most_rows = 1 if batching == "alone" else max(1, batch_tokens // length)

        # a batch that begins in this run may hold shorter rows, too
        last_end = min(stop - 1 + most_rows, count)
        if batching == "equal lengths":
            last_end = stop

        # the starts of one block of ends lie before the block: their costs are final
        for block in range(first, last_end, most_rows):
            ends = np.arange(block + 1, min(block + most_rows, last_end) + 1)
            starts = np.maximum(ends - most_rows, first)
            candidate = cost[starts] + length * (ends - starts) + BATCH_COST_TOKENS
            better = candidate < cost[ends]
            cost[ends[better]] = candidate[better]
            start_of[ends[better]] = starts[better]
    return start_of


def _equal_runs(values_N: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First row and end of every run of equal values."""
    count = len(values_N)
    if not count:
        return
    changes = (np.flatnonzero(np.diff(values_N)) + 1).tolist()
    yield from pairwise([0, *changes, count])


def padded_tokens(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> int:
    """Count the positions that are encoded, padding included."""
    length_N = np.asarray(lengths, dtype=np.int64)
    return sum(int(length_N[batch].max()) * len(batch) for batch in batches)
