"""Where rows lie: one share of the memory for all that is held, and no second copy of any of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaam_cache.store.reader import EmbeddingCache, ShardedArray, open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.training import data as loaded
from gaam_decoder.training.data import Loaded, prepare_data
from gaam_decoder.training.experiments import plan_experiments, recipes
from tests.cache.published import number_everywhere, write_cache

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
    taken = lambda: sum(f.resident.nbytes for f in held[-1]._kept.values())  # noqa: E731
    monkeypatch.setattr(loaded, "free_on", lambda device: FREE * 8 - taken())
    return open_cache(tmp_path)


def recipe(**options: Any) -> Recipe:
    [found] = recipes(
        TrainConfig(attn=("none",), pool="mean", **({"lr": 3e-4} | options)), "float32"
    )
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


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rows whose states are read."""
    found: list[int] = []
    original = ShardedArray.read_into

    def noted(self: ShardedArray, row_N: Any, raw: Any) -> None:
        if self.ndim == 3:
            found.extend(row_N.tolist())
        original(self, row_N, raw)

    monkeypatch.setattr(ShardedArray, "read_into", noted)
    return found


@pytest.mark.parametrize("share", [0.5, 0.0])
@pytest.mark.parametrize("folds", [None, 4])
def test_only_the_rows_of_a_budget_are_read(
    share: float, folds: int | None, tmp_path: Path, read: list[int]
) -> None:
    """And they are the right ones, wherever they lie and whatever else is held."""
    rows = {"train": 900, "test": 30}
    write_cache(tmp_path, rows, 2, 2, number_everywhere, shard_rows=50)
    cache = open_cache(tmp_path)
    config = TrainConfig(
        lr=3e-4,
        attn=("none",),
        cache=tmp_path,
        folds=folds,
        train_rows="10,40,all,70",
        probe=False,
    )
    held = Loaded(share)
    for number, experiment in enumerate(plan_experiments(config, cache, CPU)):
        read.clear()
        data = prepare_data(cache, experiment.recipe, CPU, held)
        assert data.selection is not None
        for part in (data.train, data.selection):
            [x_NLD] = part.features.batches(part.rows, len(part))
            np.testing.assert_array_equal(x_NLD[:, 0, 1].numpy(), part.rows)
        size = experiment.recipe.train_rows
        budget = {*data.train.rows.tolist(), *data.selection.rows.tolist()}
        assert size is None or len(budget) == size
        if folds is None and size is not None:
            tested = (
                range(30) if share and not number else range(0)
            )  # once, and then held
            assert sorted(read) == sorted([*budget, *tested]) or (number == 3 and share)
