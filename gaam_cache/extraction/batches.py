"""Batches of rows of similar length, as cheap as a limit of tokens allows.

The batches depend on nothing but the lengths, the limit, the rule of batching and the
kind of device.

N rows.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gaam_cache.store.records import Batching

Lengths = Sequence[int] | NDArray[np.int64]
BATCH_COST_TOKENS = {"cpu": 64, "gpu": 256}
"""What one more batch costs beside its tokens (launching, Python), in tokens.

MiniLM costs 15 to 60 on a CPU. On an H200, launching the kernels of one batch takes as
long as 1,000 tokens of Llama-2-13B; most of this time, the GPU computes.
"""


def token_budget_batches(
    lengths: Lengths,
    batch_tokens: int,
    batching: Batching = "padded",
    extents: Lengths | None = None,
    *,
    device_type: str = "cpu",
) -> list[NDArray[np.int64]]:
    """Split rows into the batches that cost least under a limit of tokens.

    Rows are sorted by length, longest first, so that a batch that is too large for the
    memory comes first. Dynamic programming decides where one batch ends and the next
    begins. It minimises the cost of all batches, where a batch costs (its number of
    rows) times (tokens of its longest row) plus the ``BATCH_COST_TOKENS`` of a device.

    Args:
        lengths: tokens of every row.
        batch_tokens: most tokens of a batch, padding included. A row with more tokens
            has a batch of its own.
        batching: which rows may share a batch: 'padded' for any rows, 'equal lengths',
            or 'alone'.
        extents: a finer length of every row, such as samples of a sound. It decides the
            order of the rows, and whether two rows are equally long. None: the tokens.
        device_type: 'cpu' or a kind of GPU: what a batch costs depends on it.

    Returns:
        An array of row numbers for each batch; together they hold every row once.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    extent_N = length_N
    if extents is not None:
        extent_N = np.asarray(extents, dtype=np.int64)

    order_N = np.argsort(-extent_N, kind="stable")
    # a row without tokens counts as one, because the limit is divided by the length
    sorted_length_N = np.maximum(length_N[order_N], 1)
    # A run is a series of rows with equal keys: they have the same number of tokens.
    # Rows of 'equal lengths' share a batch only within a run; with extents, rows of the
    # same number of tokens may be of several runs.
    run_key_N = sorted_length_N
    if batching == "equal lengths" and extents is not None:
        run_key_N = extent_N[order_N]
    start_by_end = _cheapest_starts(
        sorted_length_N,
        run_key_N,
        batch_tokens,
        batching,
        cost_of_batch=BATCH_COST_TOKENS["cpu" if device_type == "cpu" else "gpu"],
    )

    # the end of the last batch tells its start, which is the end of the batch before
    batches = []
    end = len(order_N)
    while end:
        start = int(start_by_end[end])
        batches.append(order_N[start:end])
        end = start
    return batches[::-1]


def _cheapest_starts(
    length_N: NDArray[np.int64],
    run_key_N: NDArray[np.int64],
    batch_tokens: int,
    batching: Batching,
    *,
    cost_of_batch: int,
) -> NDArray[np.int64]:
    """For every possible end of a batch the cheapest start of this batch.

    An end is the number of sorted rows up to and with the batch. Formula:
    ``cost[end] = min over start of cost[start] + length[start] (end - start) + C``,
    where the first row of a batch is its longest, and C is ``cost_of_batch``. Only
    batches within the limit, and batches of one row, are tried.

    Of all batches with one end whose longest rows are equally long, the batch with most
    rows is the cheapest. So each run of equally long rows gives every end at most one
    start to try, and the loop is over these runs.

    Args:
        length_N: tokens of the sorted rows, longest first.
        run_key_N: the tokens again, or a finer length; successive rows with equal keys
            are a run. With 'equal lengths' no batch has rows of two runs.
        batch_tokens: most tokens of a batch.
        batching: which rows may share a batch.
        cost_of_batch: what a batch costs beside its tokens, in tokens.

    Returns:
        The start of the batch for each end, (N + 1,); the first entry means nothing.
    """
    num_rows = len(length_N)
    # lowest cost of the first i sorted rows, in tokens
    cost_by_end = np.full(num_rows + 1, np.iinfo(np.int64).max)
    cost_by_end[0] = 0
    start_by_end = np.zeros(num_rows + 1, dtype=np.int64)
    for run_start, run_end in _equal_runs(run_key_N):
        length = int(length_N[run_start])
        most_rows = max(1, batch_tokens // length)
        if batching == "alone":
            most_rows = 1

        # a batch that begins in this run may reach into shorter rows, too: the latest
        # one begins with the last row of the run
        last_end = min(run_end - 1 + most_rows, num_rows)
        if batching == "equal lengths":
            last_end = run_end

        # A block of ``most_rows`` ends is tried at once, for speed. A batch has at most
        # so many rows, so the largest batch to every end of the block starts at or
        # before ``block_start``. The costs there are final.
        for block_start in range(run_start, last_end, most_rows):
            block_end = min(block_start + most_rows, last_end)
            ends = np.arange(block_start + 1, block_end + 1)
            starts = np.maximum(ends - most_rows, run_start)
            batch_cost = length * (ends - starts) + cost_of_batch
            cost = cost_by_end[starts] + batch_cost
            is_cheaper = cost < cost_by_end[ends]
            cost_by_end[ends[is_cheaper]] = cost[is_cheaper]
            start_by_end[ends[is_cheaper]] = starts[is_cheaper]
    return start_by_end


def _equal_runs(values_N: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of every run of equal successive values, stop excluded."""
    num_rows = len(values_N)
    if not num_rows:
        return
    run_starts = (np.flatnonzero(np.diff(values_N)) + 1).tolist()
    yield from pairwise([0, *run_starts, num_rows])


def padded_tokens(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> int:
    """Count the tokens that are encoded, padding included.

    In a batch every row is padded to the length of the longest.

    Args:
        lengths: tokens of every row.
        batches: row numbers of every batch.
    """
    length_N = np.asarray(lengths, dtype=np.int64)
    return sum(int(length_N[batch].max()) * len(batch) for batch in batches)
