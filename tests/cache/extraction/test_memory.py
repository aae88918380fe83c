"""Where a device has no memory for a batch, batches become smaller; states stay."""

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


def limit_memory(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    error: Exception = OF_A_GPU,
    first: int = 0,
) -> list[int]:
    """Let larger batches fail, after the first ones; return the sizes that failed."""
    encode = TextEncoder.encode
    encode_alone = TextEncoder.encode_alone
    refused_sizes: list[int] = []
    num_batches = 0

    def encode_or_fail(
        self: TextEncoder, items: Sequence[Any]
    ) -> dict[str, torch.Tensor]:
        nonlocal num_batches
        num_batches += 1
        size = len(items) * max(map(len, items))
        if size > most and num_batches > first:
            refused_sizes.append(size)
            raise error
        return encode(self, items)

    def encode_alone_or_fail(self: TextEncoder, item: Any) -> dict[str, torch.Tensor]:
        if len(item) > most and num_batches > first:
            raise error
        return encode_alone(self, item)

    monkeypatch.setattr(TextEncoder, "encode", encode_or_fail)
    monkeypatch.setattr(TextEncoder, "encode_alone", encode_alone_or_fail)
    return refused_sizes


def states(config: ExtractConfig) -> np.ndarray:
    return gaam_cache.open_cache(config.out)["train"].embeddings[:]


def relative_error(config: ExtractConfig, other: ExtractConfig) -> float:
    """The largest difference of a state, relative to its norm."""
    x_NLD = states(config).astype(np.float64)
    other_NLD = states(other).astype(np.float64)
    error_NL = np.linalg.norm(x_NLD - other_NLD, axis=-1)
    return float((error_NL / np.linalg.norm(other_NLD, axis=-1)).max())


@pytest.mark.parametrize("error", ERRORS, ids=["GPU", "CPU"])
def test_a_budget_that_is_too_large_is_halved_until_it_fits_and_stays_so(
    error: Exception, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny_config, batch_tokens=400, shard_rows=30)
    roomy = replace(config, out=config.out.with_name("roomy"))
    gaam_cache.extract(roomy)
    refused_sizes = limit_memory(monkeypatch, 100, error)
    with pytest.warns(GaamWarning, match="--set batch-tokens=") as warnings:
        summary = gaam_cache.extract(config)
    assert refused_sizes
    assert summary.smaller_batches is not None
    assert 50 < summary.smaller_batches <= 100, "halved too often, or not often enough"
    setting = f"--set batch-tokens={summary.smaller_batches}"
    messages = [str(warning.message) for warning in warnings]
    assert len([message for message in messages if setting in message]) == 1
    assert len(refused_sizes) < 10, "each shard tries what did not fit"
    assert relative_error(config, roomy) <= 6e-4, "more than float16 rounds"


def test_a_halved_budget_makes_the_cache_of_that_budget(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny_config, batch_tokens=400, shard_rows=30)
    limit_memory(monkeypatch, 100)
    with pytest.warns(GaamWarning, match="--set batch-tokens="):
        summary = gaam_cache.extract(config)
    assert summary.smaller_batches is not None
    monkeypatch.undo()
    out = config.out.with_name("same")
    same = replace(config, out=out, batch_tokens=summary.smaller_batches)
    same_summary = gaam_cache.extract(same)
    assert shard_bytes(same.out) == shard_bytes(config.out)
    # none counts what was dropped
    for name in ("tokens", "rows_made", "padding_share", "truncated", "proven"):
        assert getattr(same_summary, name) == getattr(summary, name), name


def test_a_row_that_does_not_fit_alone_ends_it_and_what_is_published_stays(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_memory(monkeypatch, 4, first=12)
    with pytest.raises(ShortOfMemoryError) as caught:
        gaam_cache.extract(tiny_config)
    assert ".csv, row " in caught.value.details["where"]
    before = shard_bytes(tiny_config.out)
    shards = [name for name in before if name.endswith(".h5")]
    assert shards, "nothing was published: the test shows less"
    monkeypatch.undo()
    gaam_cache.extract(tiny_config)
    assert before.items() <= shard_bytes(tiny_config.out).items()
