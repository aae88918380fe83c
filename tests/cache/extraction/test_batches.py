"""Batches: every row once within the budget, no cut cheaper, the same as they ever were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.extraction.batches import (
    BATCH_COST_TOKENS,
    cost_in_tokens,
    padded_tokens,
    token_budget_batches,
)
from gaam_cache.store.plan import BATCHINGS


def cheapest(lengths: list[int], budget: int) -> int:
    """The least cost over all ways to cut the sorted rows, by brute force."""
    ordered = sorted(lengths, reverse=True)
    costs = []
    for cuts in range(2 ** (len(ordered) - 1)):
        batches, batch = [], [ordered[0]]
        for place, length in enumerate(ordered[1:]):
            if cuts >> place & 1:
                batches.append(batch)
                batch = []
            batch.append(length)
        batches.append(batch)
        if all(len(b) == 1 or len(b) * b[0] <= budget for b in batches):
            costs.append(sum(len(b) * b[0] + BATCH_COST_TOKENS for b in batches))
    return min(costs)


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=9), budget=st.integers(1, 900))
def test_no_other_cut_is_cheaper(lengths: list[int], budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    assert cost_in_tokens(lengths, batches) == cheapest(lengths, budget)


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
            assert [batch.tolist() for batch in found] == row_by_row(lengths, budget, batching)
            assert sorted(row for batch in found for row in batch) == list(range(count))


def test_padding_stays_under_two_percent() -> None:
    lengths = np.random.default_rng(0).lognormal(3.9, 0.4, 2048).astype(int)
    for budget in (1024, 2048, 16384):
        padded = padded_tokens(lengths, token_budget_batches(lengths, budget))
        assert lengths.sum() <= padded < 1.02 * lengths.sum()
