"""``gaam train --config`` trains the run of a config.toml again, and no other."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_decoder import RunResult, TrainConfig, load_runs, train
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
GROUPS = "GROUPS"
"""Stands for a file of the groups of the training rows."""
USUAL: dict[str, Any] = {
    "epochs": 2,
    "seeds": (0, 1),
    "device": "cpu",
    "lr": 3e-4,
    "probe": False,
}
CASES: dict[str, dict[str, Any]] = {
    "steps": {
        "attn": ("gaam:heads=1", "none"),
        "head": ("mlp", "linear"),
        "batch_size": 7,
        "loss": "focal:gamma=2.5,alpha=0.25",
        "class_weights": "balanced",
        "epochs": 3,
        "schedule": "plateau",
        "ties": "first",
        "val_fraction": 0.1 + 0.2,
        "seeds": (3,),
    },
    "tuned": {
        "lr": (1e-5, 1e-2),
        "weight_decay": (0, 0.3),
        "tune_seeds": (0, 1),
        "seeds": (2, 5, 6),
        "final": True,
    },
    "rounding": {
        "dtype": "float16",
        "loss_scale": "dynamic",
        "clip_grad_norm": 1e16,
        "clip_order": "clip-first",
        "eval_dtype": "float32",
        "seed_batch": 1,
    },
    "layers": {
        "layers": ((0, 2), (1, 2, 3), None),
        "pool": ("mean", "last"),
        "split_seed": 3,
        "val_folds": 4,
        "state_scale": "layer",
    },
    "order": {"shuffle": "window:32", "shuffle_labels": True, "compile": "off"},
    "rows": {"train_rows": (20, None), "select": "last", "optimizer": "sgd"},
    "shots": {"train_rows": ("4/class", "8/class")},
    "folds": {"folds": 2, "repeats": 2, "groups": GROUPS, "final": True},
    "fold": {"folds": 3, "fold": 2, "probe": True},
    "final": {"test_split": "none", "groups": GROUPS, "probe": True},
    "splits": {"train_split": "test", "test_split": "train", "select": "test"},
    "a validation split": {"val_split": "test", "test_split": "none"},
    "same rows": {"test_split": "train", "allow_train_as_test": True},
}
"""Runs of several kinds, which together set every field that decides a number."""
NO_NUMBERS = {
    *("cache", "runs", "device", "memory_share", "track", "skip_impossible"),
    *("engine", "devices", "address", "gpus_per_worker", "rank"),
}
"""Fields that decide no number."""
NUMBERS = ("weights.safetensors", "test.safetensors", "validation.safetensors")
"""Files of a run that hold its numbers."""


def test_every_field_of_a_training_is_set_here_or_decides_no_number() -> None:
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    fields_set_here = {name for case in CASES.values() for name in case}
    assert fields == fields_set_here | NO_NUMBERS


@pytest.fixture(scope="module")
def cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A cache whose path has quotes in it."""
    folder = tmp_path_factory.mktemp("a 'cache' of \"two\" poolings")
    config = gaam_cache.ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=folder / "cache",
        pool=("mean", "last"),
        shard_rows=16,
        layer_zero=True,
    )
    gaam_cache.extract(config)
    return config.out


def train_case(case: str, cache: Path, runs: Path) -> None:
    groups = runs.with_name("names.txt")
    groups.write_text("".join(f"s{row % 7}\n" for row in range(60)))
    settings = USUAL | CASES[case]
    if settings.get("groups") == GROUPS:
        settings["groups"] = groups
    train(TrainConfig(cache=cache, runs=runs, **settings))


def recorded_settings(run: RunResult) -> dict[str, Any]:
    """The settings of a training in the configuration of a run."""
    settings = tomllib.loads((run.path / "config.toml").read_text())["train"]
    assert isinstance(settings, dict)
    return settings


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_trained_again_by_its_config_alone(
    case: str, cache: Path, gaam: Gaam, tmp_path: Path
) -> None:
    train_case(case, cache, tmp_path / "runs")
    again = tmp_path / "again"
    runs = load_runs(tmp_path / "runs")
    for run in runs:
        config = run.path / "config.toml"
        outcome = gaam("train", "--config", config, "--runs", again)
        assert outcome.code == 0, outcome.err
    repeated_runs = {run.path.name: run for run in load_runs(again)}
    assert repeated_runs.keys() == {run.path.name for run in runs}
    for run in runs:
        repeated = repeated_runs[run.path.name]
        assert repeated.key == run.key
        assert repeated.seeds == run.seeds
        assert repeated.recipe == run.recipe
        for file in set(NUMBERS) & run.files.keys():
            assert repeated.files[file].sha256 == run.files[file].sha256, (run, file)
        expected = recorded_settings(run) | {"runs": str(again)}
        assert recorded_settings(repeated) == expected


def times_of_files(folder: Path) -> dict[Path, int]:
    """When each file was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_run_that_was_moved_is_read_as_before(
    cache: Path, gaam: Gaam, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    train_case("layers", cache, runs)
    report = gaam("report", runs, "--format", "csv").out
    moved = tmp_path / "else" / "where"
    moved.parent.mkdir()
    runs.rename(moved)
    assert gaam("report", moved, "--format", "csv").out == report
    times = times_of_files(moved)
    config = next(moved.glob("*/config.toml"))
    assert gaam("train", "--config", config, "--runs", moved).code == 0
    assert times_of_files(moved) == times
