"""Every shard proves itself: some of its rows are encoded again, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import NumericsError
from gaam_cache.extraction.batches import token_budget_batches
from gaam_cache.extraction.states import StateMaker, choose_rows
from gaam_cache.store.plan import BATCHINGS


@pytest.mark.parametrize(
    ("dtype", "storage_dtype", "away"), [("float32", "float16", 2e-4), ("bfloat16", "float32", 0.4)]
)
def test_a_state_that_is_not_that_of_the_text_alone_stops_the_extraction(
    dtype: Any,
    storage_dtype: Any,
    away: float,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = TextEncoder.encode

    def spoiled(self: TextEncoder, items: Sequence[list[int]]) -> dict[str, torch.Tensor]:
        pooled = {name: states.clone() for name, states in encode(self, items).items()}
        if len(items) > 1:
            pooled["mean"][:, 1] *= 1 + away
        return pooled

    monkeypatch.setattr(TextEncoder, "encode", spoiled)
    config = replace(tiny_config, dtype=dtype, storage_dtype=storage_dtype)
    with pytest.raises(NumericsError, match="in layer 2") as caught:
        gaam_cache.extract(config)
    assert "train.csv, row" in caught.value.details["where"]
    assert "--set batch-tokens=1" in caught.value.details["to do"]
    assert not list((config.out / "shards").glob("*.json"))


def test_rows_that_changed_places_on_their_way_stop_the_extraction(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = StateMaker._assemble
    monkeypatch.setattr(
        StateMaker, "_assemble", lambda *arguments: np.roll(assemble(*arguments), 1, axis=0)
    )
    with pytest.raises(NumericsError, match="batch-tokens=1"):
        gaam_cache.extract(tiny_config)
    assert not list((tiny_config.out / "shards").glob("*.json"))


@given(
    count=st.integers(1, 1500),
    seed=st.integers(0, 99),
    budget=st.integers(1, 4096),
    batching=st.sampled_from(BATCHINGS),
)
@settings(deadline=None)
def test_the_rows_of_a_proof(count: int, seed: int, budget: int, batching: Any) -> None:
    """One in 500, two at least, the shortest of the batch with most padding among them."""
    lengths = np.random.default_rng(seed).integers(1, 300, size=count).tolist()
    batches = token_budget_batches(lengths, budget, batching)
    rows = choose_rows(lengths, batches)
    assert rows == choose_rows(lengths, batches)
    assert len(rows) == len(set(rows)) == min(len(lengths), max(2, -(-len(lengths) // 500)))
    padding = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    most = batches[int(np.argmax(padding))]
    assert lengths[rows[0]] == min(lengths[i] for i in most)
