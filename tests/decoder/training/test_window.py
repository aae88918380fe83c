"""Training in blocks: the same from disk and memory, resumed, alone; a recipe of its own."""

from __future__ import annotations

import warnings as std_warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_cache.config import ExtractConfig
from gaam_cache.extraction.extract import extract
from gaam_decoder import TrainConfig
from gaam_decoder.runs.result import RunResult


@pytest.fixture(scope="module")
def cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """60 training rows in shards of 10; to be read and not changed."""
    out = tmp_path_factory.mktemp("window") / "cache"
    encoder = str(encoders["bert"])
    extract(
        ExtractConfig(encoder=encoder, dataset=str(dataset), out=out, shard_rows=10)
    )
    return out


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> TrainConfig:
    """In blocks of two shards or three."""
    return TrainConfig(
        cache=cache,
        runs=tmp_path / "runs",
        attn=("gaam",),
        seeds=(0, 1, 7),
        epochs=3,
        batch_size=8,
        lr=0.01,
        compile="off",
        device="cpu",
        shuffle="window:25",
        probe=False,
    )


def same(first: RunResult, second: RunResult) -> None:
    for file in ("weights.safetensors", "test.safetensors"):
        assert (first.path / file).read_bytes() == (second.path / file).read_bytes()
    logs = [
        [{k: v for k, v in e.items() if k != "seconds"} for e in r.log]
        for r in (first, second)
    ]
    assert logs[0] == logs[1]


OPTIONS: list[dict[str, Any]] = [
    {"shuffle": "full", "select": "test"},
    {"folds": 2, "fold": 2, "seed_batch": 2, "layers": (1, 3)},
    {"shuffle_labels": True, "dtype": "float16", "clip_grad_norm": 1.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_disk_and_memory_give_the_same_bits(
    options: dict[str, Any], config: TrainConfig, tmp_path: Path
) -> None:
    config = replace(config, **options)
    with std_warnings.catch_warnings():
        std_warnings.simplefilter("ignore", GaamWarning)
        [held] = gaam_decoder.train(config)
        [read] = gaam_decoder.train(
            replace(config, memory_share=0.0, runs=tmp_path / "read")
        )
    assert (held.engine["data"], read.engine["data"]) == ("memory", "disk")
    assert held.key == read.key
    same(held, read)
