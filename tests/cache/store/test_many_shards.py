"""More shards than a process may open files, or map memory: the number of shards is no limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_decoder.training import data as features
from tests.cache.published import number_everywhere, write_cache


@pytest.fixture
def few_files() -> Iterator[None]:
    """As many as are open, and 50."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (len([*Path("/dev/fd").iterdir()]) + 50, before[1])
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_300_shards_with_50_open_files(tmp_path: Path) -> None:
    write_cache(
        tmp_path / "cache",
        {"train": 300 * 3 - 1},
        2,
        2,
        number_everywhere,
        shard_rows=3,
    )
    train = gaam_cache.open_cache(tmp_path / "cache")["train"]
    assert (train.labels == np.arange(len(train)) % 2).all()
    assert (train.num_tokens == 1 + np.arange(len(train)) % 9).all()
    array = features.Features(train.embeddings, torch.device("cpu"), "disk")
    rows = np.random.default_rng(0).integers(0, len(train), (2, 1500))
    for number, batch in enumerate(array.batches(rows, 50)):
        expected = rows[:, 50 * number : 50 * number + 50] % 1000
        assert (batch.numpy()[..., 0, 0] == expected).all()
        assert (batch.numpy()[..., 1, 1] == -expected).all()
    assert (train.embeddings[:][:, 0, 0] == np.arange(len(train)) % 1000).all()
    found = gaam_cache.verify(tmp_path / "cache")
    assert found.good, found.bad[:3]
    assert found.rows == len(train)
