"""Where rows lie: one share of the memory for all that is held, and no second copy of any of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.training import features as loaded
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import recipes
from tests.cache.published import write_cache

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
        (99, ("disk", "disk", "memory")),
        (59, ("disk", "disk", "disk")),
    ],
)
def test_all_splits_share_one_part_of_the_memory(
    room: int, expected: tuple[str, ...], cache: EmbeddingCache
) -> None:
    """What is read more often comes first, and together they take no more than the share."""
    assert places(cache, recipe(), Loaded(room / FREE)) == expected


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
