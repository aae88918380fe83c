"""``gaam extract --dry-run`` counts what the extraction then makes."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.tiny import write_csv

MODULE = importlib.import_module("gaam_cache.extraction.estimate")


@pytest.fixture
def bare(tiny_config: ExtractConfig, tmp_path: Path) -> ExtractConfig:
    """The same encoder without its weights: its configuration and tokenizer remain."""
    folder = Path(shutil.copytree(tiny_config.encoder, tmp_path / "bare"))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return replace(
        tiny_config, encoder=str(folder), device="cuda:7", tokens_per_second=50.0
    )


@pytest.mark.parametrize("has_weights", [True, False], ids=["timed", "named speed"])
@pytest.mark.parametrize(
    "settings",
    [
        {"pool": ("mean", "last"), "storage_dtype": "float32"},
        {"max_length": 5, "limit": 7},
    ],
    ids=["poolings", "limits"],
)
def test_rows_tokens_and_bytes_are_those_of_the_cache_that_is_then_made(
    settings: dict[str, Any],
    has_weights: bool,
    tiny_config: ExtractConfig,
    bare: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODULE, "SAMPLE_SECONDS", 0.05)
    config = replace(tiny_config, **settings)
    if has_weights:
        estimate = gaam_cache.estimate(config)
        assert estimate.timed_on == "cpu"
    else:
        estimate = gaam_cache.estimate(replace(bare, **settings))
        assert (estimate.timed_on, estimate.tokens_per_second) == (None, 50.0)
    assert not config.out.exists()

    summary = gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    states = [cache[split].pooled(pool) for split in cache for pool in config.pool]
    num_values = sum(torch.Size(array.shape).numel() for array in states)
    item_bytes = 4 if config.storage_dtype == "float32" else 2
    num_tokens = sum(int(cache[split].num_tokens.sum()) for split in cache)
    num_truncated = estimate.truncated_share * summary.rows_made
    assert estimate.exact_tokens
    assert estimate.rows == {split: len(cache[split]) for split in cache}
    assert estimate.tokens == num_tokens
    assert num_truncated == pytest.approx(summary.truncated)
    assert estimate.bytes == item_bytes * num_values
    seconds = estimate.tokens / estimate.tokens_per_second
    assert estimate.seconds == pytest.approx(seconds)


def test_many_rows_are_estimated_from_a_sample(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MAX_SAMPLE_ROWS", 30)
    estimate = gaam_cache.estimate(replace(tiny_config, tokens_per_second=100.0))
    tokens = gaam_cache.extract(tiny_config).tokens
    assert not estimate.exact_tokens
    assert abs(estimate.tokens - tokens) < 0.3 * tokens
    assert estimate.seconds == pytest.approx(estimate.tokens / 100, rel=0.01)


def test_what_the_first_row_becomes_is_shown(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    rows = [("a", "goal strange bank"), ("b", "star vote " * 9)]
    data = tmp_path / "data"
    for split in ("train", "test"):
        write_csv(data / f"{split}.csv", rows)
    config = replace(tiny_config, dataset=str(data), tokens_per_second=100.0)
    estimate = gaam_cache.estimate(config)
    assert estimate.first_row == "[CLS] goal [UNK] bank [SEP]  (5 tokens)"
    assert estimate.unknown_share == pytest.approx(1 / 21)
    lines = [line for line in estimate.in_words().splitlines() if "row 1" in line]
    assert lines == ["  row 1    [CLS] goal [UNK] bank [SEP]  (5 tokens), of 'train'"]
    assert "4.8% unknown" in estimate.in_words()
    write_csv(data / "train.csv", rows[::-1])
    shown = gaam_cache.estimate(config).first_row
    assert shown.startswith("[CLS] star vote ")
    assert shown.endswith(" [SEP]  (20 tokens)")
    assert len(shown) < 88
