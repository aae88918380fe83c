"""Where the device has no memory for a batch, batches become smaller and the states stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import GaamWarning, ShortOfMemoryError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from tests.conftest import shard_bytes

OF_A_GPU = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has none"
)
ERRORS = [OF_A_GPU, RuntimeError("DefaultCPUAllocator: can't allocate memory")]
ENCODE, ALONE = TextEncoder.encode, TextEncoder.encode_alone


def limit(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    error: Exception = OF_A_GPU,
    first: int = 0,
) -> list[int]:
    """Let batches of more than ``most`` tokens fail, after some; returns the sizes of those."""
    refused: list[int] = []
    seen = [0]

    def encode(self: TextEncoder, items: Sequence[Any]) -> dict[str, torch.Tensor]:
        seen[0] += 1
        size = len(items) * max(map(len, items))
        if size > most and seen[0] > first:
            refused.append(size)
            raise error
        return ENCODE(self, items)

    def encode_alone(self: TextEncoder, item: Any) -> dict[str, torch.Tensor]:
        if len(item) > most and seen[0] > first:
            raise error
        return ALONE(self, item)

    monkeypatch.setattr(TextEncoder, "encode", encode)
    monkeypatch.setattr(TextEncoder, "encode_alone", encode_alone)
    return refused


def states(config: ExtractConfig) -> np.ndarray:
    return gaam_cache.open_cache(config.out)["train"].embeddings[:]


@pytest.mark.parametrize("error", ERRORS)
def test_a_budget_that_is_too_large_is_halved_until_it_fits_and_stays_so(
    error: Exception, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny_config, batch_tokens=400, shard_rows=30)
    roomy = replace(config, out=config.out.with_name("roomy"))
    gaam_cache.extract(roomy)
    refused = limit(monkeypatch, 100, error)
    with pytest.warns(GaamWarning, match="--set batch-tokens=") as said:
        summary = gaam_cache.extract(config)
    assert refused
    assert summary.smaller_batches is not None
    assert 50 < summary.smaller_batches <= 100, (
        "halved once more than needed, or less often"
    )
    asked = f"--set batch-tokens={summary.smaller_batches}"
    assert len([one for one in said if asked in str(one.message)]) == 1
    assert len(refused) < 10, "what did not fit is tried again with every shard"
    ours, theirs = (states(one).astype(np.float64) for one in (config, roomy))
    away = np.linalg.norm(ours - theirs, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert away.max() <= 6e-4, "more than float16 rounds"
    if error is not OF_A_GPU:
        return
    monkeypatch.undo()
    same = replace(
        config, out=config.out.with_name("same"), batch_tokens=summary.smaller_batches
    )
    other = gaam_cache.extract(same)
    assert shard_bytes(same.out) == shard_bytes(config.out), (
        "not what the budget alone makes"
    )
    for name in ("tokens", "rows_made", "padding_share", "truncated", "proven"):
        assert getattr(other, name) == getattr(summary, name), (
            f"{name} counts what was dropped"
        )


def test_a_row_that_does_not_fit_alone_ends_it_and_what_is_published_stays(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, 4, first=12)
    with pytest.raises(ShortOfMemoryError) as caught:
        gaam_cache.extract(tiny_config)
    assert ".csv, row " in caught.value.details["where"]
    before = shard_bytes(tiny_config.out)
    assert any(name.endswith(".h5") for name in before), (
        "nothing was published: it shows less"
    )
    monkeypatch.undo()
    gaam_cache.extract(tiny_config)
    assert before.items() <= shard_bytes(tiny_config.out).items()
