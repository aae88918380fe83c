"""Training rows that lie on disk give the bits of rows that lie in memory."""

from __future__ import annotations

import warnings as std_warnings
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.common.errors import GaamWarning
from gaam_cache.config import ExtractConfig
from gaam_cache.extraction.extract import extract
from gaam_decoder import RunResult
from tests.decoder.configs import train_config, train_single_run


@pytest.fixture(scope="module")
def cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """60 training rows in shards of 10; to be read and not changed."""
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=tmp_path_factory.mktemp("window") / "cache",
        shard_rows=10,
    )
    extract(config)
    return config.out


def log_without_times(run: RunResult) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in entry.items() if key != "seconds"}
        for entry in run.log
    ]


# a window of 25 rows holds two shards of 10, or three
OPTIONS: dict[str, dict[str, Any]] = {
    "full": {"shuffle": "full", "select": "test"},
    "window, a fold": {
        "shuffle": "window:25",
        "folds": 2,
        "fold": 2,
        "seed_batch": 2,
        "layers": (1, 3),
    },
    "window, float16": {
        "shuffle": "window:25",
        "shuffle_labels": True,
        "dtype": "float16",
        "clip_grad_norm": 1.0,
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_disk_and_memory_give_the_same_bits(
    options: dict[str, Any], cache: Path, tmp_path: Path
) -> None:
    config = train_config(
        cache,
        tmp_path / "memory",
        attn=("gaam",),
        seeds=(0, 1, 7),
        epochs=3,
        batch_size=8,
        lr=0.01,
        compile="off",
        device="cpu",
        **options,
    )
    with std_warnings.catch_warnings():
        std_warnings.simplefilter("ignore", GaamWarning)
        from_memory = train_single_run(config)
        from_disk = train_single_run(config, memory_share=0.0, runs=tmp_path / "disk")
    assert from_memory.engine["data"] == "memory"
    assert from_disk.engine["data"] == "disk"
    assert from_memory.key == from_disk.key
    for file in ("weights.safetensors", "test.safetensors"):
        memory_bytes = (from_memory.path / file).read_bytes()
        assert memory_bytes == (from_disk.path / file).read_bytes(), file
    assert log_without_times(from_memory) == log_without_times(from_disk)
