"""Length-sorted batches under a token budget: pure functions of the lengths and the budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def token_budget_batches(lengths: Sequence[int], batch_tokens: int) -> list[NDArray[np.int64]]:
    """Split rows into batches whose padded size stays within a budget.

    Rows are sorted by length, longest first, so that neighbours need little padding and a batch
    too large for the memory shows itself at once. Ties keep their order: the same lengths always
    give the same batches, which is what makes an interrupted extraction resume to the same bytes.

    Args:
        lengths: tokens of every row.
        batch_tokens: rows x longest row of one batch at most; a row longer than that goes alone.

    Returns:
        Arrays of row numbers that together hold every row once.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-length_N, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        longest = int(length_N[order[start]])
        stop = start + max(1, batch_tokens // max(1, longest))
        batches.append(order[start:stop])
        start = stop
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[NDArray[np.int64]]) -> float:
    """Share of the encoded positions that are padding, in [0, 1)."""
    length_N = np.asarray(lengths, dtype=np.int64)
    padded = sum(int(length_N[batch].max()) * len(batch) for batch in batches)
    return 1 - int(length_N.sum()) / padded if padded else 0.0
