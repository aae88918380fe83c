"""Where rows lie: one share of the memory for all that is held, and no second copy of any of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.items import recipes
from gaam_decoder.training.rows import loaded
from gaam_decoder.training.rows.data import prepare_data
from gaam_decoder.training.rows.loaded import Loaded
from tests.cache.published import write_cache, write_random_cache

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")
ROWS = {"train": 100, "test": 60}
FREE = 1000
"""Rows that the memory has room for."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingCache:
    """Rows of 8 bytes, and a memory in which what is held is no longer free."""

    def states(shard: Any) -> Any:
        numbers = np.arange(shard.start, shard.stop, dtype=np.float16)
        return np.broadcast_to(numbers[:, None, None], (len(numbers), 2, 2)).copy()

    write_cache(tmp_path, ROWS, 2, 2, states, shard_rows=10)
    held: list[Loaded] = []
    original = Loaded.__init__

    def begin(self: Loaded, share: float = 0.5) -> None:
        held.append(self)
        original(self, share)

    monkeypatch.setattr(Loaded, "__init__", begin)
    taken = lambda: sum(f.resident.nbytes for f in held[-1]._held.values())  # noqa: E731
    monkeypatch.setattr(loaded, "free_on", lambda device: FREE * 8 - taken())
    return open_cache(tmp_path)


def recipe(**options: Any) -> Recipe:
    [found] = recipes(TrainConfig(attn=("none",), pool="mean", **options), "float32")
    return replace(found, shard_rows=10 if found.window else None)


def places(cache: EmbeddingCache, of: Recipe, held: Loaded) -> tuple[str, ...]:
    data = prepare_data(cache, of, CPU, held)
    parts = (data.train, data.selection, data.test)
    for part in parts:
        if part is not None:
            # wherever they are: these rows
            [x_NLD] = part.features.batches(part.rows, len(part))
            np.testing.assert_array_equal(x_NLD[:, 1, 1].numpy(), part.rows)
    return tuple("" if part is None else part.features.place for part in parts)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (160, ("memory", "memory", "memory")),
        (159, ("memory", "memory", "disk")),
        (100, ("memory", "memory", "disk")),
        (99, ("disk", "memory", "memory")),  # 10 rows choose; then there is room for the test rows
        (69, ("disk", "memory", "disk")),
        (9, ("disk", "disk", "disk")),
        (0, ("disk", "disk", "disk")),
    ],
)
def test_all_splits_share_one_part_of_the_memory(
    room: int, expected: tuple[str, ...], cache: EmbeddingCache
) -> None:
    """What is read more often comes first, and together they take no more than the share."""
    assert places(cache, recipe(), Loaded(room / FREE)) == expected


@pytest.mark.parametrize(("room", "choosing"), [(99, "memory"), (50, "memory"), (49, "disk")])
def test_two_blocks_take_their_part_of_the_share(
    room: int, choosing: str, cache: EmbeddingCache
) -> None:
    """Of 20 rows each; beside them 10 rows choose."""
    found = places(cache, recipe(shuffle="window:20"), Loaded(room / FREE))
    assert found == ("disk", choosing, "disk")


def test_rows_of_another_kind_make_room(cache: EmbeddingCache) -> None:
    """A sweep over layers holds what it trains on, not all that it has trained on."""
    held = Loaded(0.16)
    for layers in ((1,), (2,), None, (1,), (2,)):
        data = prepare_data(cache, recipe(layers=layers), CPU, held)
        assert data.train.features.place == data.test.features.place == "memory"
        total = sum(one.resident.nbytes for one in held._held.values())  # type: ignore[union-attr]
        assert total <= 160 * 8


def test_folds_share_what_is_held(cache: EmbeddingCache) -> None:
    held = Loaded(0.16)
    found = [prepare_data(cache, recipe(folds=3, fold=fold), CPU, held) for fold in (1, 2, 3)]
    assert len({id(part.features) for data in found for part in (data.train, data.test)}) == 1


PEAK = """
import resource, sys
import torch
from gaam_cache.cache import open_cache
from gaam_decoder.training.rows.features import Features
split = open_cache(sys.argv[1])["train"]
split.labels  # checks every shard
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM:")) * 1024
before = peak()
features = Features(split.embeddings, torch.device("cpu"))
print((peak() - before) / features.resident.nbytes)
"""


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "float32"])
def test_loading_a_split_takes_its_size(storage: str, tmp_path: Path) -> None:
    """80 MB or more; a second copy, or bfloat16 made wider, would be twice that."""
    layers, size, count = 4, 512, 20_000

    def states(shard: Any) -> Any:
        kind = {"bfloat16": np.uint16}.get(storage, storage)
        return np.ones((shard.stop - shard.start, layers, size), kind)

    write_cache(tmp_path, {"train": count}, layers, size, states, storage_dtype=storage)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert 0.9 < json.loads(done.stdout) < 1.25


def test_blocks_take_the_memory_of_two(tmp_path: Path) -> None:
    """Whatever the number of blocks: every one is in the memory of one of two."""
    write_random_cache(tmp_path, 4096, 2, 4)
    array = open_cache(tmp_path)["train"].embeddings
    features = loaded.Features(array, CPU, "disk")
    rows = np.split(np.arange(4096), 16)
    found = set()
    for block, row_M in zip(features.blocks(rows), rows, strict=True):
        np.testing.assert_array_equal(block.numpy(), array[row_M])
        found.add(block.untyped_storage().data_ptr())
    assert len(found) == 2
