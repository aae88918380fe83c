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
    """The same encoder with its weights gone: configuration and tokenizer are all there is."""
    folder = Path(shutil.copytree(tiny_config.encoder, tmp_path / "bare"))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return replace(
        tiny_config, encoder=str(folder), device="cuda:7", tokens_per_second=50.0
    )


@pytest.mark.parametrize(
    "more",
    [
        {"pool": ("mean", "last"), "storage_dtype": "float32"},
        {"max_length": 5, "limit": 7},
    ],
)
def test_rows_tokens_and_bytes_are_those_of_the_cache_that_is_then_made(
    more: dict[str, Any],
    tiny_config: ExtractConfig,
    bare: ExtractConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODULE, "SAMPLE_SECONDS", 0.05)
    config = replace(tiny_config, **more)
    timed, named = (
        gaam_cache.estimate(config),
        gaam_cache.estimate(replace(bare, **more)),
    )
    assert not config.out.exists()
    summary = gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    states = [cache[split].pooled(pool) for split in cache for pool in config.pool]
    item = 4 if config.storage_dtype == "float32" else 2
    for said in (timed, named):
        assert said.exact_tokens
        assert said.rows == {name: len(cache[name]) for name in cache}
        assert said.tokens == sum(int(cache[name].num_tokens.sum()) for name in cache)
        assert said.truncated_share * summary.rows_made == pytest.approx(
            summary.truncated
        )
        assert said.bytes == item * sum(torch.Size(one.shape).numel() for one in states)
        assert said.seconds == pytest.approx(said.tokens / said.tokens_per_second)
    assert timed.timed_on == "cpu"
    assert (named.timed_on, named.tokens_per_second) == (None, 50.0)


def test_many_rows_are_estimated_from_a_sample(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MAX_SAMPLE_ROWS", 30)
    said = gaam_cache.estimate(replace(tiny_config, tokens_per_second=100.0))
    tokens = gaam_cache.extract(tiny_config).tokens
    assert not said.exact_tokens
    assert abs(said.tokens - tokens) < 0.3 * tokens
    assert said.seconds == pytest.approx(said.tokens / 100, rel=0.01)


def test_what_the_first_row_becomes_is_shown(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    rows = [("a", "goal strange bank"), ("b", "star vote " * 9)]
    data = tmp_path / "data"
    for split in ("train", "test"):
        write_csv(data / f"{split}.csv", rows)
    config = replace(tiny_config, dataset=str(data), tokens_per_second=100.0)
    said = gaam_cache.estimate(config)
    assert said.first_row == "[CLS] goal [UNK] bank [SEP]  (5 tokens)"
    assert said.unknown_share == pytest.approx(1 / 21)
    lines = [line for line in said.in_words().splitlines() if "row 1" in line]
    assert lines == ["  row 1    [CLS] goal [UNK] bank [SEP]  (5 tokens), of 'train'"]
    assert "4.8% unknown" in said.in_words()
    write_csv(data / "train.csv", rows[::-1])
    shown = gaam_cache.estimate(config).first_row
    assert shown.startswith("[CLS] star vote ")
    assert shown.endswith(" [SEP]  (20 tokens)")
    assert len(shown) < 88
