"""More shards than a process may open files or map memory: their number is no limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.store.reader import ShardedArray
from gaam_decoder.training import data as features
from tests.cache.published import number_everywhere, write_cache


@pytest.fixture
def few_files() -> Iterator[None]:
    """A limit of 50 open files more than there are."""
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 50, hard_limit))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))


@pytest.mark.usefixtures("few_files")
def test_300_shards_with_50_open_files(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    num_rows = 300 * 3 - 1
    write_cache(folder, {"train": num_rows}, 2, 2, number_everywhere, shard_rows=3)
    train = gaam_cache.open_cache(folder)["train"]
    row_N = np.arange(num_rows)
    np.testing.assert_array_equal(train.labels, row_N % 2)
    np.testing.assert_array_equal(train.num_tokens, 1 + row_N % 9)
    np.testing.assert_array_equal(train.embeddings[:][:, 0, 0], row_N % 1000)
    check_batches(train.embeddings)
    result = gaam_cache.verify(folder)
    assert result.good, result.bad[:3]
    assert result.rows == num_rows


def check_batches(states: ShardedArray) -> None:
    """Check batches of random rows, as a training reads them from the disk."""
    array = features.Features(states, torch.device("cpu"), "disk")
    rows = np.random.default_rng(0).integers(0, len(states), (2, 1500))
    for number, batch in enumerate(array.batches(rows, 50)):
        values = batch.numpy()
        expected = rows[:, 50 * number : 50 * number + 50] % 1000
        np.testing.assert_array_equal(values[..., 0, 0], expected)
        np.testing.assert_array_equal(values[..., 1, 1], -expected)
