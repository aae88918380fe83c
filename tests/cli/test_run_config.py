"""config.toml of a run: ``gaam train --config`` trains the same run again, and no other."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_decoder import TrainConfig, load_runs, train
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
USUAL: dict[str, Any] = {"epochs": 2, "seeds": (0, 1), "device": "cpu"}
OTHERWISE: dict[str, dict[str, Any]] = {
    "steps": {
        "attn": ("gaam:heads=1", "none"), "head": ("mlp", "linear"), "batch_size": 7,
        "loss": "focal:gamma=2.5,alpha=0.25", "class_weights": "balanced", "epochs": 3,
        "schedule": "plateau", "ties": "first", "val_fraction": 0.1 + 0.2, "seeds": (3,),
    },
    "tuned": {
        "lr": (1e-5, 1e-2), "weight_decay": (0, 0.3), "tune_seeds": (0, 1), "seeds": (2, 5, 6),
        "final": True,
    },
    "rounding": {
        "dtype": "float16", "loss_scale": "dynamic", "clip_grad_norm": 1e16,
        "clip_order": "clip-first", "eval_dtype": "float32", "seed_batch": 1,
    },
    "layers": {
        "layers": ((0, 2), (1, 2, 3), None), "pool": ("mean", "last"), "split_seed": 3,
        "val_folds": 4,
    },
    "order": {"shuffle": "window:32", "shuffle_labels": True, "compile": "off"},
    "rows": {"train_rows": (20, None), "select": "last", "optimizer": "sgd"},
    "shots": {"train_rows": ("4/class", "8/class")},
    "folds": {"folds": 2, "repeats": 2, "groups": "GROUPS", "final": True},
    "fold": {"folds": 3, "fold": 2, "probe": True},
    "final": {"test_split": "none", "groups": "GROUPS", "probe": True},
    "splits": {"train_split": "test", "test_split": "train", "select": "test"},
    "same rows": {"test_split": "train", "allow_train_as_test": True},
}  # fmt: skip
"""Runs of several kinds, which together set every field that decides a number."""
NO_NUMBERS = {
    *("cache", "runs", "device", "memory_share", "track", "skip_impossible"),
    *("engine", "devices", "address", "gpus_per_worker", "rank"),
}


def test_every_field_of_a_training_is_set_here_or_decides_no_number() -> None:
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert fields == {name for case in OTHERWISE.values() for name in case} | NO_NUMBERS


@pytest.fixture(scope="module", name="cache")
def _cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    root = tmp_path_factory.mktemp("a 'cache' of \"two\" poolings")
    config = gaam_cache.ExtractConfig(
        encoder=str(encoders["bert"]), dataset=str(dataset), out=root / "cache",
        pool=("mean", "last"), shard_rows=16, layer_zero=True,
    )  # fmt: skip
    gaam_cache.extract(config)
    return config.out


def made(cache: Path, runs: Path, case: str) -> None:
    names = runs.with_name("names.txt")
    names.write_text("".join(f"s{row % 7}\n" for row in range(60)))
    of = {k: names if v == "GROUPS" else v for k, v in OTHERWISE[case].items()}
    usual = {"lr": 3e-4, "probe": False} | USUAL
    train(TrainConfig(cache=cache, runs=runs, **(usual | of)))


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_run_is_trained_again_by_its_config_alone(
    case: str, cache: Path, gaam: Gaam, tmp_path: Path
) -> None:
    made(cache, tmp_path / "runs", case)
    first = load_runs(tmp_path / "runs")
    for run in first:
        outcome = gaam(
            "train", "--config", run.path / "config.toml", "--runs", tmp_path / "again"
        )
        assert outcome.code == 0, outcome.err
    second = {run.path.name: run for run in load_runs(tmp_path / "again")}
    assert second.keys() == {run.path.name for run in first}
    for run in first:
        again = second[run.path.name]
        assert (again.key, again.seeds, again.recipe) == (
            run.key,
            run.seeds,
            run.recipe,
        )
        for file in (
            "weights.safetensors",
            "test.safetensors",
            "validation.safetensors",
        ):
            if file in run.files:
                assert again.files[file].sha256 == run.files[file].sha256, (
                    run,
                    file,
                )
        before, after = (
            tomllib.loads((one.path / "config.toml").read_text())["train"]
            for one in (run, again)
        )
        assert after == before | {"runs": str(tmp_path / "again")}


def test_a_run_that_was_moved_is_read_as_before(
    cache: Path, gaam: Gaam, tmp_path: Path
) -> None:
    runs, moved = tmp_path / "runs", tmp_path / "else" / "where"
    made(cache, runs, "layers")
    before = gaam("report", runs, "--format", "csv").out
    moved.parent.mkdir()
    runs.rename(moved)
    assert gaam("report", moved, "--format", "csv").out == before
    there = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    config = next(moved.glob("*/config.toml"))
    assert gaam("train", "--config", config, "--runs", moved).code == 0
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == there
