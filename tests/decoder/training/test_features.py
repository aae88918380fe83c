"""Where rows lie: all share one part of the memory, and nothing is held twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gaam_cache.store.plan import ShardSpec
from gaam_cache.store.reader import EmbeddingCache, ShardedArray, open_cache
from gaam_decoder.training import data as loaded
from gaam_decoder.training.data import Features, LoadedFeatures, Subset, prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.cache.published import number_everywhere, write_cache
from tests.decoder.configs import train_config

CPU = torch.device("cpu")
ROWS = {"train": 100, "test": 60}
ROW_BYTES = 8
FREE = 1000
"""Rows that the memory has room for."""


def row_numbers(shard: ShardSpec) -> NDArray[np.float16]:
    """States that are the numbers of their rows."""
    numbers = np.arange(shard.start, shard.stop, dtype=np.float16)
    return np.broadcast_to(numbers[:, None, None], (len(numbers), 2, 2)).copy()


def resident_bytes(features: Features) -> int:
    return 0 if features.resident is None else features.resident.nbytes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingCache:
    """Rows of 8 bytes, and a memory in which what is loaded is no longer free."""
    write_cache(tmp_path, ROWS, 2, 2, row_numbers, shard_rows=10)
    instances: list[LoadedFeatures] = []
    original_init = LoadedFeatures.__init__

    def noted_init(self: LoadedFeatures, share: float = 0.5) -> None:
        instances.append(self)
        original_init(self, share)

    def free_bytes(device: torch.device) -> int:
        features = instances[-1]._features_by_key.values()
        return FREE * ROW_BYTES - sum(resident_bytes(each) for each in features)

    monkeypatch.setattr(LoadedFeatures, "__init__", noted_init)
    monkeypatch.setattr(loaded, "free_bytes", free_bytes)
    return open_cache(tmp_path)


def check_states(rows: Subset) -> None:
    """Wherever the rows lie: they have the states of these rows."""
    [x_NLD] = rows.features.batches(rows.rows, len(rows))
    np.testing.assert_array_equal(x_NLD[:, 0, 1].numpy(), rows.rows)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        pytest.param(160, ("memory", "memory", "memory"), id="room for all"),
        pytest.param(159, ("memory", "memory", "disk"), id="room for training rows"),
        pytest.param(99, ("disk", "disk", "memory"), id="room for test rows"),
        pytest.param(59, ("disk", "disk", "disk"), id="room for none"),
    ],
)
def test_all_splits_share_one_part_of_the_memory(
    room: int, expected: tuple[str, ...], cache: EmbeddingCache, tmp_path: Path
) -> None:
    """What is read more often comes first; all take no more than the share."""
    config = train_config(tmp_path, tmp_path / "runs", lr=3e-4, attn=("none",))
    [experiment] = plan_experiments(config, cache, CPU)
    data = prepare_data(cache, experiment.recipe, CPU, LoadedFeatures(room / FREE))
    assert data.selection is not None
    assert data.test is not None
    parts = (data.train, data.selection, data.test)
    for rows in parts:
        check_states(rows)
    assert tuple(rows.features.location for rows in parts) == expected


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rows whose states are read."""
    rows_read: list[int] = []
    original_read = ShardedArray.read_into

    def noted_read(self: ShardedArray, row_N: Any, raw: Any) -> None:
        if self.ndim == 3:
            rows_read.extend(row_N.tolist())
        original_read(self, row_N, raw)

    monkeypatch.setattr(ShardedArray, "read_into", noted_read)
    return rows_read


BUDGETS = (10, 40, None, 70)


@pytest.mark.parametrize("share", [0.5, 0.0], ids=["in memory", "on disk"])
@pytest.mark.parametrize("folds", [None, 4], ids=["a test split", "folds"])
def test_only_the_rows_of_a_budget_are_read(
    share: float, folds: int | None, tmp_path: Path, rows_read: list[int]
) -> None:
    """And they are the right ones, wherever they lie and whatever else is loaded."""
    num_rows = {"train": 900, "test": 30}
    write_cache(tmp_path, num_rows, 2, 2, number_everywhere, shard_rows=50)
    cache = open_cache(tmp_path)
    config = train_config(
        tmp_path,
        tmp_path / "runs",
        lr=3e-4,
        attn=("none",),
        folds=folds,
        train_rows="10,40,all,70",
    )
    kept = LoadedFeatures(share)
    sizes = set()
    for number, experiment in enumerate(plan_experiments(config, cache, CPU)):
        rows_read.clear()
        data = prepare_data(cache, experiment.recipe, CPU, kept)
        assert data.selection is not None
        check_states(data.train)
        check_states(data.selection)
        size = experiment.recipe.train_rows
        sizes.add(size)
        if size is None:
            continue
        budget = {*data.train.rows.tolist(), *data.selection.rows.tolist()}
        assert len(budget) == size
        if folds is not None:
            continue
        # once all training rows are in memory, they are not read again
        is_loaded = number == BUDGETS.index(70) and share > 0
        if not is_loaded:
            # the test rows are read once, and then kept
            test_rows = range(30) if share and number == 0 else range(0)
            assert sorted(rows_read) == sorted([*budget, *test_rows])
    assert sizes == set(BUDGETS)
