"""Length-sorted batches under a token budget: pure functions of the lengths and the budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BATCH_COST_TOKENS = 64
"""What one more batch costs beside its tokens (launching, Python), in tokens; measured on MiniLM
on a CPU it is 15 to 60."""


def token_budget_batches(lengths: Sequence[int], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Split rows into the batches that cost least under a token budget.

    Rows are sorted by length, longest first, so that neighbours need little padding and a batch too
    large for the memory shows itself at once. Where to cut is found by dynamic programming over the
    sorted rows, which minimises padded positions plus ``BATCH_COST_TOKENS`` per batch; filling each
    batch to the brim instead pads 4 times as much. The result is a function of the arguments alone,
    which is what makes an interrupted extraction resume to the same bytes.

    Args:
        lengths: tokens of every row.
        batch_tokens: rows x longest row of one batch at most; a row longer than that goes alone.

    Returns:
        Arrays of row numbers that together hold every row once.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    order_N = np.argsort(-length_N, kind="stable")
    longest_N = np.maximum(length_N[order_N], 1)
    count = len(order_N)
    cost = np.full(count + 1, np.iinfo(np.int64).max)  # of the first i rows, in tokens
    cost[0] = 0
    start_of = np.zeros(count + 1, dtype=np.int64)  # of the batch that ends before row i
    for start in range(count):
        rows = min(count - start, max(1, batch_tokens // int(longest_N[start])))
        ends = np.arange(start + 1, start + rows + 1)
        candidate = cost[start] + longest_N[start] * (ends - start) + BATCH_COST_TOKENS
        better = ends[candidate < cost[ends]]
        cost[better] = candidate[better - start - 1]
        start_of[better] = start
    batches = []
    stop = count
    while stop:
        batches.append(order_N[start_of[stop] : stop])
        stop = int(start_of[stop])
    return batches[::-1]


def padded_tokens(lengths: Sequence[int], batches: Sequence[NDArray[np.int64]]) -> int:
    """Positions that are encoded, padding included."""
    length_N = np.asarray(lengths, dtype=np.int64)
    return sum(int(length_N[batch].max()) * len(batch) for batch in batches)


def padding_share(lengths: Sequence[int], batches: Sequence[NDArray[np.int64]]) -> float:
    """Share of the encoded positions that are padding, in [0, 1)."""
    padded = padded_tokens(lengths, batches)
    return 1 - sum(lengths) / padded if padded else 0.0
