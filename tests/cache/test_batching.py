from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.batching import padding_share, token_budget_batches

LENGTHS = st.lists(st.integers(1, 600), min_size=1, max_size=200)


@given(lengths=LENGTHS, budget=st.integers(1, 4096))
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


@given(lengths=LENGTHS, budget=st.integers(1, 4096))
def test_padding_share_counts_positions(lengths: list[int], budget: int) -> None:
    batches = token_budget_batches(lengths, budget)
    positions = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    np.testing.assert_allclose(padding_share(lengths, batches), 1 - sum(lengths) / positions)


def test_sorting_keeps_padding_small() -> None:
    lengths = np.random.default_rng(0).integers(5, 200, 2000).tolist()
    assert padding_share(lengths, token_budget_batches(lengths, 2048)) < 0.03
