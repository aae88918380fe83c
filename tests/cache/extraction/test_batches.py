"""Batches: every row once within the budget, none cheaper, the same as they ever were."""

from __future__ import annotations

import numpy as np

from gaam_cache.extraction.batches import BATCH_COST_TOKENS, token_budget_batches
from gaam_cache.store.records import BATCHINGS


def row_by_row(lengths: list[int], budget: int, batching: str) -> list[list[int]]:
    """The definition: every batch from every row on, in order; of equally cheap ones the first.

    Caches of 0.1.0 were made with these batches: others would make other bytes.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    longest = [max(lengths[row], 1) for row in order]
    best = {0: (0, 0)}
    for start, length in enumerate(longest):
        rows = 1 if batching == "alone" else max(1, budget // length)
        for stop in range(start + 1, min(start + rows, len(order)) + 1):
            if batching == "equal lengths" and longest[stop - 1] != length:
                break
            cost = best[start][0] + length * (stop - start) + BATCH_COST_TOKENS
            if stop not in best or cost < best[stop][0]:
                best[stop] = cost, start
    batches, stop = [], len(order)
    while stop:
        batches.append(order[best[stop][1] : stop])
        stop = best[stop][1]
    return batches[::-1]


def test_batches_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    for case in range(1500):
        count = int(rng.integers(0, (4, 20, 60)[case % 3]))
        lengths = rng.integers(0, rng.choice([2, 4, 12, 70, 600]), count).tolist()
        budget = int(rng.choice([1, rng.integers(1, 60), rng.integers(1, 900), 16384]))
        for batching in BATCHINGS:
            found = token_budget_batches(lengths, budget, batching)
            assert [batch.tolist() for batch in found] == row_by_row(
                lengths, budget, batching
            )
            assert sorted(row for batch in found for row in batch) == list(range(count))
