"""Every shard proves itself: some of its rows are encoded again, alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gaam_cache
from gaam_cache.common.errors import NumericsError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder, _TextForward
from gaam_cache.extraction.batches import token_budget_batches
from gaam_cache.extraction.proof import choose_proof_rows
from gaam_cache.extraction.states import StateExtractor
from gaam_cache.store.records import BATCHINGS


@pytest.mark.parametrize(
    ("dtype", "storage_dtype", "away"),
    [("float32", "float16", 2e-4), ("bfloat16", "float32", 0.4)],
)
def test_a_state_that_is_not_that_of_the_text_alone_stops_the_extraction(
    dtype: Any,
    storage_dtype: Any,
    away: float,
    tiny_config: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = TextEncoder.encode

    def spoiled(
        self: TextEncoder, items: Sequence[list[int]]
    ) -> dict[str, torch.Tensor]:
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


@dataclass(frozen=True)
class Rounded:
    """What arithmetic adds to the states of a batch, and to those of a row alone."""

    in_batch: float
    alone: float
    # to those of a batch there too, as no rounding does
    in_higher_precision: bool
    accepted: bool

    @property
    def case(self) -> str:
        stays = "stays" if self.in_higher_precision else "goes"
        return f"{self.in_batch:g} beside {self.alone:g} {stays}"


@pytest.mark.parametrize(
    "rounded",
    [
        Rounded(2e-4, 6e-5, in_higher_precision=False, accepted=True),
        Rounded(2e-4, 6e-5, in_higher_precision=True, accepted=False),
        Rounded(2e-4, 1e-5, in_higher_precision=False, accepted=False),
    ],
    ids=lambda rounded: rounded.case,
)
def test_a_row_whose_rounding_is_amplified_is_accepted_if_higher_precision_says_so(
    rounded: Rounded, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_for = TextEncoder.load_for
    encode_batch = _TextForward.__call__
    encode_alone = _TextForward.reference_states

    def times(states: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
        return {name: x_BLD * (1 + share) for name, x_BLD in states.items()}

    def round_batch(self: _TextForward, items: Any) -> dict[str, torch.Tensor]:
        is_rounded = self.dtype == torch.float32 or rounded.in_higher_precision
        share = rounded.in_batch if len(items) > 1 and is_rounded else 0.0
        return times(encode_batch(self, items), share)

    def round_alone(self: _TextForward, item: Any) -> dict[str, torch.Tensor]:
        share = rounded.alone if self.dtype == torch.float32 else 0.0
        return times(encode_alone(self, item), share)

    def load_and_round(self: TextEncoder, *args: Any, **options: Any) -> None:
        # the encoder is measured as it is: only the rows of the data are rounded
        load_for(self, *args, **options)
        monkeypatch.setattr(_TextForward, "__call__", round_batch)
        monkeypatch.setattr(_TextForward, "reference_states", round_alone)

    monkeypatch.setattr(TextEncoder, "load_for", load_and_round)
    config = replace(tiny_config, dtype="float32", storage_dtype="float32")
    if not rounded.accepted:
        with pytest.raises(NumericsError, match="rounding explains"):
            gaam_cache.extract(config)
        assert not list((config.out / "shards").glob("*.json"))
        return
    gaam_cache.extract(config)
    check = gaam_cache.verify(config.out, recompute_rows=84)
    assert check.good
    assert check.recomputed is not None
    deviation = max(check.recomputed["deviation"])
    assert deviation == pytest.approx(1.4e-4, rel=0.02)
    assert check.recomputed["limit"] >= deviation


def test_rows_that_changed_places_on_their_way_stop_the_extraction(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = StateExtractor._assemble

    def assemble_in_another_order(*args: Any) -> Any:
        return np.roll(assemble(*args), 1, axis=0)

    monkeypatch.setattr(StateExtractor, "_assemble", assemble_in_another_order)
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
    """One in 500, two at least, and the shortest of the batch with most padding."""
    lengths = np.random.default_rng(seed).integers(1, 300, size=count).tolist()
    batches = token_budget_batches(lengths, budget, batching)
    rows = choose_proof_rows(lengths, batches)
    assert rows == choose_proof_rows(lengths, batches)
    one_in_500 = -(-count // 500)
    assert len(rows) == min(count, max(2, one_in_500))
    assert len(set(rows)) == len(rows)
    lengths_of_batches = [[lengths[row] for row in batch] for batch in batches]
    padding = [max(batch) - min(batch) for batch in lengths_of_batches]
    most_padded = lengths_of_batches[int(np.argmax(padding))]
    assert lengths[rows[0]] == min(most_padded)
