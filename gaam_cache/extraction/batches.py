"""Length-sorted batches under a token budget: pure functions of the lengths and the budget."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import budget_of as budget_of
from gaam_cache.store.plan import Batching

Lengths = Sequence[int] | NDArray[np.int64]
BATCH_COST_TOKENS = 64
"""What one more batch costs beside its tokens (launching, Python), in tokens; measured on MiniLM
on a CPU it is 15 to 60."""


def token_budget_batches(
    lengths: Lengths,
    batch_tokens: int,
    batching: Batching = "padded",
    extents: Lengths | None = None,
) -> list[NDArray[np.int64]]:
    """Split rows into the batches that cost least under a token budget.

    Rows are sorted by length, longest first, so that a batch too large for the memory shows itself
    at once. Where to cut is found by dynamic programming, which minimises padded positions plus
    ``BATCH_COST_TOKENS`` per batch. Of the batches that begin with a row of one length and end at
    the same row the longest is the cheapest, so every end has one start.

    ``batch_tokens`` is rows x longest row of one batch at most; a row longer than that goes alone.
    ``extents`` decides whether two rows are of equal length, where tokens do not. Returns arrays of
    row numbers that together hold every row once.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    extent_N = length_N if extents is None else np.asarray(extents, dtype=np.int64)
    order_N = np.argsort(-extent_N, kind="stable")
    longest_N = np.maximum(length_N[order_N], 1)
    finer = batching == "equal lengths" and extents is not None
    equal_N = extent_N[order_N] if finer else longest_N
    count = len(order_N)
    cost = np.full(count + 1, np.iinfo(np.int64).max)  # of the first i rows, in tokens
    cost[0] = 0
    start_of = np.zeros(
        count + 1, dtype=np.int64
    )  # of the batch that ends before row i
    edges = (
        [0, *(np.flatnonzero(np.diff(equal_N)) + 1).tolist(), count] if count else [0]
    )
    for first, stop in pairwise(edges):  # rows of one length
        length = int(longest_N[first])
        rows = 1 if batching == "alone" else max(1, batch_tokens // length)
        last = stop if batching == "equal lengths" else min(stop - 1 + rows, count)
        for done in range(first, last, rows):
            ends = np.arange(done + 1, min(done + rows, last) + 1)
            starts = np.maximum(ends - rows, first)
            candidate = cost[starts] + length * (ends - starts) + BATCH_COST_TOKENS
            better = candidate < cost[ends]
            cost[ends[better]] = candidate[better]
            start_of[ends[better]] = starts[better]
    batches = []
    stop = count
    while stop:
        batches.append(order_N[start_of[stop] : stop])
        stop = int(start_of[stop])
    return batches[::-1]


def padded_tokens(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> int:
    """Positions that are encoded, padding included."""
    length_N = np.asarray(lengths, dtype=np.int64)
    return sum(int(length_N[batch].max()) * len(batch) for batch in batches)
