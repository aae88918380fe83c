"""Training on budgets together with all else that a training can be told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.store.read import ShardReader
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.listing import verify
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import plan_items
from tests.cache.published import number_everywhere, write_cache
from tests.decoder.tensors import tensors

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    """60 rows of two classes, of which 8, 20 or all are learned from."""
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2,
        batch_size=8, lr=0.01, compile="off", device="cpu", train_rows="8,20,all",
    )  # fmt: skip


def bits(run: RunResult) -> dict[str, bytes]:
    """All numbers that came of it."""
    found = {}
    for name in ("weights.safetensors", "test.safetensors"):
        found |= {f"{name}/{key}": array.tobytes() for key, array in tensors(run, name).items()}
    log = [{k: v for k, v in entry.items() if k != "seconds"} for entry in run.log]
    return found | {"log": json.dumps(log).encode()}


WAYS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "folds": {"folds": 2},
    "batches of which the last has one row": {"batch_size": 6, "attn": ("mha-bn", "gaam")},
    "a fit beside it": {"probe": True, "attn": ("none",)},
    "final models": {"final": True},
    "a window": {"shuffle": "window:10"},
    "shots": {"train_rows": "2/class,9/class,all", "split_seed": 3},
    "tuned": {"lr": (1e-3, 1e-1), "tune_seeds": (7, 8)},
}


def by_key(runs: list[RunResult]) -> dict[Any, dict[str, bytes]]:
    return {(run.key, run.seeds): bits(run) for run in runs}


@pytest.mark.parametrize(
    "way",
    WAYS,
)
def test_a_size_alone_is_what_it_is_among_others(way: str, config: TrainConfig) -> None:
    """The same bits, whatever other sizes are asked for; all is the run without the option."""
    config = replace(config, **WAYS[way])
    together = gaam_decoder.train(config)
    assert len({run.path for run in together}) == len(by_key(together))
    alone = []
    for place, size in enumerate(config.train_rows):
        one = replace(config, runs=config.runs.parent / str(place), train_rows=size)
        alone += gaam_decoder.train(one)
        for run in alone[-1:]:
            assert bool({"train_rows", "shots"} & set(run.recipe)) == (size is not None)
            assert bool(run.drawn) == (size is not None)
    assert by_key(together) == by_key(alone)
    for run in together:
        rows, choose = sum(run.drawn.values()), run.drawn.get("choose", 0)
        shots = run.recipe.get("shots")
        assert rows == (run.recipe.get("train_rows") or (2 * shots if shots else 0))
        assert (choose > 0) == (bool(run.drawn) and run.select == "val")
        if run.drawn:
            words = f"{shots} shot" if shots else f"{rows} rows"
            assert words in run.title
    assert verify(config.runs).good
    assert by_key(gaam_decoder.train(config)) == by_key(together)


def test_stopped_at_any_moment_a_sweep_over_sizes_goes_on_to_the_same_bits(
    config: TrainConfig,
) -> None:
    config = replace(config, seed_batch=1)
    expected = by_key(gaam_decoder.train(config))
    for stop in (1, 2, 4, 7, 10, 13):
        again, told = replace(config, runs=config.runs.parent / f"stopped-{stop}"), 0

        def tell(done: int, total: int, text: str, stop: int = stop) -> None:
            nonlocal told
            told += 1
            if told == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            gaam_decoder.train(again, progress=tell)
        assert by_key(gaam_decoder.train(again)) == expected


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rows whose states are read."""
    found: list[int] = []
    original = ShardReader.read

    def noted(self: ShardReader, key: str, row_N: Any, *rest: Any) -> None:
        if key.startswith("embeddings"):
            found.extend(row_N.tolist())
        original(self, key, row_N, *rest)

    monkeypatch.setattr(ShardReader, "read", noted)
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
    config = TrainConfig(attn=("none",), cache=tmp_path, folds=folds, train_rows="10,40,all,70")
    held = Loaded(share)
    for number, item in enumerate(plan_items(config, cache, CPU)):
        read.clear()
        data = prepare_data(cache, item.recipe, CPU, held)
        assert data.selection is not None
        for part in (data.train, data.selection):
            [x_NLD] = part.features.batches(part.rows, len(part))
            np.testing.assert_array_equal(x_NLD[:, 0, 1].numpy(), part.rows)
        size = item.recipe.train_rows
        budget = {*data.train.rows.tolist(), *data.selection.rows.tolist()}
        assert size is None or len(budget) == size
        if folds is None and size is not None:
            tested = range(30) if share and not number else range(0)  # once, and then held
            assert sorted(read) == sorted([*budget, *tested]) or (number == 3 and share)


def test_a_number_that_is_all_rows_is_all_rows(config: TrainConfig) -> None:
    (named,) = gaam_decoder.train(replace(config, train_rows=60))
    (plain,) = gaam_decoder.train(replace(config, train_rows=None))
    assert named.path == plain.path
    assert "train_rows" not in plain.recipe
