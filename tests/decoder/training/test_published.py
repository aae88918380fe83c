"""The published protocol: what it is, each part of it alone, and recipes that have none of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.settings import resolve
from gaam_decoder import TrainConfig
from gaam_decoder.reports.table import build_tables
from gaam_decoder.training.grid import recipes
from tests.conftest import GOLDEN, Outcome

SCALED = {"loss_scale": "dynamic", "clip_grad_norm": 1000.0}
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dtype": ({}, {"dtype": "float16"}),
    "eval_dtype": ({"dtype": "float16"}, {"eval_dtype": "float32"}),
    "clip_order": (SCALED, {"clip_order": "clip-first"}),
    "schedule": ({"epochs": 30, "select": "last"}, {"schedule": "plateau"}),
    "select": ({"epochs": 3}, {"select": "test"}),
}
"""What has to be there -> the part of the published protocol that is switched on."""
WITHOUT_EFFECT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "loss_scale": ({}, {"loss_scale": "dynamic"}),
    "ties": ({}, {"ties": "first"}),
}
"""Recorded and shown too; powers of two round nothing, and these few epochs have no ties."""


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        cache=tiny_cache,
        runs=tmp_path / "runs",
        attn=("gaam",),
        seeds=(0, 1),
        epochs=1,
        lr=0.01,
        compile="off",
        device="cpu",
    )


@pytest.mark.parametrize("part", [*PARTS, *WITHOUT_EFFECT])
def test_every_part_can_be_had_alone(part: str, config: TrainConfig) -> None:
    beside, alone = {**PARTS, **WITHOUT_EFFECT}[part]
    (plain,) = gaam_decoder.train(replace(config, **beside))
    (other,) = gaam_decoder.train(replace(config, **beside, **alone))
    [value] = alone.values()
    assert other.key != plain.key
    assert json.loads((other.path / "run.json").read_text())["recipe"][part] == value
    [table] = build_tables([plain, other])
    if part != "select":  # marked in a row's name
        assert any(f"{part}={value}" in settings for settings in table.settings())
    assert (plain.logits == other.logits).all() == (part in WITHOUT_EFFECT)


def test_float16_scales_its_losses_unasked() -> None:
    asked = {"float32": "none", "bfloat16": "none", "float16": "dynamic"}
    for dtype, expected in asked.items():
        config = TrainConfig(dtype=dtype)  # type: ignore[arg-type]
        [recipe] = recipes(config, dtype)  # type: ignore[arg-type]
        assert recipe.loss_scale == expected
        [given] = recipes(replace(config, loss_scale="dynamic"), dtype)  # type: ignore[arg-type]
        assert (given == recipe) == (dtype == "float16")


@pytest.mark.parametrize("run", sorted(GOLDEN.glob("v*/runs/*/run.json")), ids=lambda p: p.parent)
def test_recipes_of_earlier_versions_keep_their_keys(run: Path) -> None:
    about = json.loads(run.read_text())
    given = {k: v for k, v in about["recipe"].items() if k not in ("fold", "layers")}
    [recipe] = recipes(TrainConfig(attn=(about["attention"],), **given), given["dtype"])
    assert recipe.to_dict() == about["recipe"]
    cache = open_cache(run.parents[2] / "cache")
    assert recipe.key(cache.fingerprint) == about["key"]


def test_the_preset_is_the_published_recipe_line_by_line() -> None:
    config = resolve(TrainConfig, "train", {"pool": "mean"}, preset="paper")
    [recipe] = recipes(config, "float16")
    assert str(recipe.head) == "conv"
    assert recipe.to_dict() == {
        "loss": "cross-entropy",
        "epochs": 35,
        "batch_size": 32,
        "lr": 1e-4,
        "weight_decay": 0.01,
        "schedule": "plateau",
        "clip_grad_norm": 1000.0,
        "clip_order": "clip-first",
        "loss_scale": "dynamic",
        "dtype": "float16",
        "eval_dtype": "float32",
        "select": "test",
        "ties": "first",
        "val_fraction": 0.1,
        "split_seed": 0,
        "pool": "mean",
        "layers": None,
        "train_split": "train",
        "test_split": "test",
        "allow_train_as_test": False,
        "fold": None,
    }


def test_the_preset_trains_and_can_be_taken_apart(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    options = ["--preset", "paper", "--cache", tiny_cache, "--runs", tmp_path, "--device", "cpu"]
    options += ["--attn", "gaam", "--attn", "gqgaam:published=true,width=16", "--epochs", 2]
    options += ["--seeds", 2]
    trained = gaam("train", *options)
    assert trained.code == 0, trained.err
    report = gaam("report", tmp_path, "--json").out
    assert "published=true" in report
    parts = ["--set", "loss-scale=none", "--set", "clip-order=unscale-first", "--dtype", "float32"]
    assert gaam("train", *options, *parts).code == 0
    refused = gaam("train", *options, "--set", "loss-scale=none")
    assert refused.code == 2
    assert "loses small gradients" in refused.err
