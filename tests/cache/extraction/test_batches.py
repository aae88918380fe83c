"""Batches hold every row once within the budget, none is cheaper, and none changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaam_cache.extraction.batches import token_budget_batches
from gaam_cache.store.records import BATCHINGS


def row_by_row(
    lengths: list[int], budget: int, batching: str, cost_of_batch: int
) -> list[list[int]]:
    """The definition: every batch from every row on; of equally cheap ones the first.

    Caches of 0.1.0 were made with these batches on a CPU: others would make other bytes.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    longest = [max(lengths[row], 1) for row in order]
    best = {0: (0, 0)}
    for start, length in enumerate(longest):
        rows = 1 if batching == "alone" else max(1, budget // length)
        for stop in range(start + 1, min(start + rows, len(order)) + 1):
            if batching == "equal lengths" and longest[stop - 1] != length:
                break
            cost = best[start][0] + length * (stop - start) + cost_of_batch
            if stop not in best or cost < best[stop][0]:
                best[stop] = (cost, start)
    batches: list[list[int]] = []
    stop = len(order)
    while stop:
        start = best[stop][1]
        batches.append(order[start:stop])
        stop = start
    return batches[::-1]


@st.composite
def draw_lengths(draw: st.DrawFn) -> list[int]:
    """Lengths of up to 60 rows, many of them equal or all different."""
    longest = draw(st.sampled_from([1, 3, 11, 69, 599]))
    return draw(st.lists(st.integers(0, longest), max_size=60))


@pytest.mark.parametrize(
    ("device_type", "cost_of_batch"), [("cpu", 64), ("cuda", 256), ("mps", 256)]
)
@pytest.mark.parametrize("batching", BATCHINGS)
@settings(max_examples=400)
@given(
    lengths=draw_lengths(),
    budget=st.one_of(st.integers(1, 60), st.integers(1, 900), st.just(16384)),
)
def test_batches_are_those_of_the_definition(
    batching: Any, device_type: str, cost_of_batch: int, lengths: list[int], budget: int
) -> None:
    batches = token_budget_batches(lengths, budget, batching, device_type=device_type)
    rows = [batch.tolist() for batch in batches]
    assert rows == row_by_row(lengths, budget, batching, cost_of_batch)
    assert sorted(row for batch in rows for row in batch) == list(range(len(lengths)))
