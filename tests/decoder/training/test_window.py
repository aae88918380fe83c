"""Training in blocks: the same from disk and memory, resumed, alone; a recipe of its own."""

from __future__ import annotations

import json
import warnings as std_warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.extraction.extract import extract
from gaam_decoder import TrainConfig
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.runs.result import RunResult
from gaam_decoder.training.items import plan_items, recipes
from gaam_decoder.training.reading import unmixed
from gaam_decoder.training.rows import loaded
from gaam_decoder.training.rows.data import prepare_data
from tests.cache.published import write_cache
from tests.conftest import Outcome

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """60 training rows in shards of 10; to be read and not changed."""
    out = tmp_path_factory.mktemp("window") / "cache"
    encoder = str(encoders["bert"])
    extract(ExtractConfig(encoder=encoder, dataset=str(dataset), out=out, shard_rows=10))
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
    )


def content(run: RunResult) -> dict[str, Any]:
    """All numbers of a run."""
    log = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    files = {
        name: safetensors.numpy.load_file(run.path / name)
        for name in ("weights.safetensors", "test.safetensors")
    }
    found = {f"{file} {name}": v for file, arrays in files.items() for name, v in arrays.items()}
    found["log"] = [{k: v for k, v in entry.items() if k != "seconds"} for entry in log]
    return found


def same(first: RunResult, second: RunResult) -> None:
    one, other = content(first), content(second)
    assert one.keys() == other.keys()
    assert one.pop("log") == other.pop("log")
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"select": "test"},
    {"select": "last", "layers": (1, 3)},
    {"folds": 2, "fold": 2},
    {"attn": ("mha:published=true",)},
    {"dtype": "float16", "clip_grad_norm": 1.0},
    {"shuffle_labels": True},
    {"seed_batch": 2},
]


@pytest.mark.parametrize("shuffle", ["full", "window:1", "window:25"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_disk_and_memory_give_the_same_bits(
    options: dict[str, Any], shuffle: str, config: TrainConfig, tmp_path: Path
) -> None:
    config = replace(config, shuffle=shuffle, **options)
    with std_warnings.catch_warnings():
        std_warnings.simplefilter("ignore", GaamWarning)
        [held] = gaam_decoder.train(config)
        [read] = gaam_decoder.train(replace(config, memory_share=0.0, runs=tmp_path / "read"))
    assert (held.engine["data"], read.engine["data"]) == ("memory", "disk")
    assert held.key == read.key
    same(held, read)


def test_bfloat16_is_held_as_it_is_stored_and_gives_the_same_bits(
    config: TrainConfig, tmp_path: Path
) -> None:
    """As float32, to which a step widens it, and from disk."""
    bits: dict[str, Any] = {}

    def narrow(shard: Any) -> Any:
        states = open_cache(config.cache)[shard.split].embeddings[shard.start : shard.stop]
        bits[shard.name] = (states.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return bits[shard.name]

    def wide(shard: Any) -> Any:
        return (bits[shard.name].astype(np.uint32) << 16).view(np.float32)

    rows = {"train": 60, "test": 24}
    about: dict[str, Any] = {"shard_rows": 10}
    write_cache(tmp_path / "narrow", rows, 3, 32, narrow, storage_dtype="bfloat16", **about)
    write_cache(tmp_path / "wide", rows, 3, 32, wide, storage_dtype="float32", **about)
    for shuffle in ("full", "window:25"):
        found = []
        for cache, share in (("narrow", 0.5), ("narrow", 0.0), ("wide", 0.5)):
            runs = tmp_path / f"runs {cache} {share} {shuffle}"
            asked = replace(config, cache=tmp_path / cache, runs=runs, shuffle=shuffle)
            with std_warnings.catch_warnings():
                std_warnings.simplefilter("ignore", GaamWarning)
                found += gaam_decoder.train(replace(asked, memory_share=share))
        same(found[0], found[1])
        same(found[0], found[2])


def test_taken_up_in_the_middle_it_ends_with_the_same_bits(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = gaam_decoder.train(config)
    taken_up = replace(config, runs=tmp_path / "again", memory_share=0.0)
    monkeypatch.setattr("gaam_decoder.runs.unfinished.Checkpoint.due", True)

    def stop(done: int, total: int, text: str) -> None:
        if "epoch 2/3" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(taken_up, progress=stop)
    epochs: list[str] = []
    [run] = gaam_decoder.train(taken_up, progress=lambda done, total, text: epochs.append(text))
    assert not any("epoch 1/3" in text for text in epochs)
    same(whole, run)


def test_a_window_is_a_recipe_of_its_own_with_the_rows_of_a_shard(config: TrainConfig) -> None:
    cache = open_cache(config.cache)
    keys = set()
    for shuffle in ("full", "window:25", "window:024", "window:24"):
        [item] = plan_items(replace(config, shuffle=shuffle), cache, CPU)
        about = item.recipe.to_dict()
        if shuffle == "full":
            assert not about.keys() & {"shuffle", "shard_rows"}
        else:
            assert (about["shuffle"], about["shard_rows"]) == (shuffle.replace(":0", ":"), 10)
        keys.add(item.key)
    assert len(keys) == 3
    # of the same cache in other shards the order is another, and so is the key
    cache.plan = replace(cache.plan, shard_rows=20)
    [item] = plan_items(replace(config, shuffle="window:25"), cache, CPU)
    assert item.key not in keys


def test_what_is_fitted_at_once_knows_no_order() -> None:
    [plain] = recipes(TrainConfig(attn=("none",), head="lbfgs"), "float32")
    [window] = recipes(TrainConfig(attn=("none",), head="lbfgs", shuffle="window:9"), "float32")
    assert plain == window


@pytest.mark.parametrize(
    "value",
    [
        *("", "window", "window:", "window:0", "window:-1", "window:1.5", "window:1e3", "Full"),
        *("full:1", "window:9 ", "window:\u0661", "window:" + "9" * 16, 7, None, True, ["full"]),
    ],
)
def test_any_other_word_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="shuffle"):
        TrainConfig(shuffle=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_a_share_of_memory_is_a_share(value: Any) -> None:
    with pytest.raises(ConfigError, match="memory-share"):
        TrainConfig(memory_share=value)


def test_orders_are_rows_of_their_own_and_are_not_compared(
    config: TrainConfig, gaam: Callable[..., Outcome]
) -> None:
    both = ("gaam", "none")
    for shuffle, attn in (("full", both), ("window:25", both), ("window:50", ("gaam",))):
        gaam_decoder.train(replace(config, shuffle=shuffle, attn=attn))
    runs = gaam_decoder.load_runs(config.runs)
    assert len(runs) == 5
    [table] = build_tables(runs, baseline="none")
    assert [row.seeds for row in table.rows] == [(0, 1, 7)] * 5
    assert sorted(table.labels()) == [
        "gaam",
        "gaam shard_rows=10, shuffle=window:25",
        "gaam shard_rows=10, shuffle=window:50",
        "none",
        "none shard_rows=10, shuffle=window:25",
    ]
    for row, comparison in zip(table.rows, table.comparisons, strict=True):
        expected = row.attention == "gaam" and row.recipe.get("shuffle") != "window:50"
        assert (comparison is not None) == expected
    assert sum("shuffle window:25" in run.title for run in runs) == 2
    assert not any("shuffle full" in run.title for run in runs)
    assert "shuffle=window:25" in gaam("report", config.runs).out


def test_an_ablation_keeps_the_window(config: TrainConfig) -> None:
    [run] = gaam_decoder.train(replace(config, epochs=1))
    found = gaam_decoder.ablate(run.path, num_layers=1, attn="none", device="cpu")
    assert len(found.groups) == 4
    retrained = [one for one in gaam_decoder.load_runs(config.runs) if one.key != run.key]
    assert {one.recipe["shuffle"] for one in retrained} == {"window:25"}


def test_what_reads_row_by_row_says_so_once(config: TrainConfig) -> None:
    asked = replace(config, shuffle="full", memory_share=0.0, attn=("gaam", "none"))
    with pytest.warns(GaamWarning) as said:
        gaam_decoder.train(asked)
    [line] = [str(one.message) for one in said if "on disk" in str(one.message)]
    assert "--set shuffle=window:6 " in line
    with std_warnings.catch_warnings():
        std_warnings.simplefilter("error", GaamWarning)
        gaam_decoder.train(replace(asked, runs=config.runs / "held", memory_share=0.5))
        gaam_decoder.train(replace(config, runs=config.runs / "blocks", memory_share=0.0))


def test_rows_sorted_by_class_are_said_and_mixed_ones_are_not(tmp_path: Path) -> None:
    """Whatever the window, rows in turn are mixed; sorted ones are where it holds many shards."""

    def states(shard: Any) -> Any:
        return np.ones((shard.stop - shard.start, 1, 2), np.float16)

    write_cache(tmp_path / "cache", {"train": 4000, "test": 10}, 1, 2, states, shard_rows=10)
    cache = open_cache(tmp_path / "cache")
    mixed = cache["train"].labels
    for sort in (False, True):
        cache["train"].__dict__["labels"] = np.sort(mixed) if sort else mixed
        said = {}
        for window in (5, 10, 40, 100, 1000, 2000, 5000):
            [item] = plan_items(
                TrainConfig(attn=("none",), cache=cache.root, shuffle=f"window:{window}"),
                cache,
                CPU,
            )
            data = prepare_data(cache, item.recipe, CPU)
            said[window] = unmixed(data, item.recipe)
        if not sort:
            assert set(said.values()) == {None}
        else:
            assert all(said[window] for window in (5, 10, 40))
            assert "blocks lack a class" in str(said[40])
            assert said[2000] is said[5000] is None


def test_blocks_that_do_not_fit_are_refused_with_the_largest_that_do(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "free_on", lambda device: 4 * 30 * 3 * 32 * 2)
    asked = replace(config, memory_share=0.0)
    gaam_decoder.train(replace(asked, shuffle="window:30"))
    with pytest.raises(ConfigError, match=r"too large(.|\n)*--set shuffle=window:30"):
        gaam_decoder.train(replace(asked, shuffle="window:31"))


def test_seeds_of_a_window_are_those_of_a_group_of_any_size(config: TrainConfig) -> None:
    """Up to the rounding of sums that are stacked: what they see is the same."""
    [together] = gaam_decoder.train(config)
    [alone] = gaam_decoder.train(replace(config, runs=config.runs / "alone", seeds=(7,)))
    np.testing.assert_allclose(alone.logits[0], together.logits[2], rtol=1e-4, atol=1e-4)
