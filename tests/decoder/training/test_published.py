"""The published protocol: what it is, each part of it alone, and recipes that have none of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError
from gaam_cache.settings import resolve
from gaam_decoder import TrainConfig
from gaam_decoder.attention._grouped_query import MappedGroupedQuery
from gaam_decoder.reports.notes.notes import warnings
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.specs import build, parse_attention
from gaam_decoder.training.failures import what_to_try
from gaam_decoder.training.items import recipes
from gaam_decoder.training.rows.protocol import Score
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


def test_of_equal_epochs_the_first_or_that_of_the_lower_loss() -> None:
    first, second, better = Score(0.5, 1.0), Score(0.5, 0.9), Score(0.6, 2.0)
    assert second.beats(first)
    assert not second.beats(first, "first")
    assert better.beats(first, "first")
    assert first.beats(None, "first")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_order": "clip-first"}, "--set loss-scale=dynamic and clip-grad-norm with it"),
        ({"clip_order": "clip-first", "clip_grad_norm": 1.0}, "--set loss-scale=dynamic with it"),
        ({"clip_order": "clip-first", "dtype": "float16"}, "clip-grad-norm with it"),
        ({"dtype": "float16", "loss_scale": "none"}, "loses small gradients"),
        ({"ties": "first", "select": "last"}, "ties plays no part"),
        *(({name: "some"}, f"{name.replace('_', '-')} is out of range")
          for name in ("dtype", "eval_dtype", "loss_scale", "clip_order", "ties", "schedule")),
    ],
)  # fmt: skip
def test_what_has_no_effect_or_misleads_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**options)


def test_float16_scales_its_losses_unasked() -> None:
    asked = {"float32": "none", "bfloat16": "none", "float16": "dynamic"}
    for dtype, expected in asked.items():
        config = TrainConfig(dtype=dtype)  # type: ignore[arg-type]
        [recipe] = recipes(config, dtype)  # type: ignore[arg-type]
        assert recipe.loss_scale == expected
        [given] = recipes(replace(config, loss_scale="dynamic"), dtype)  # type: ignore[arg-type]
        assert (given == recipe) == (dtype == "float16")


def test_evaluating_in_the_type_of_the_training_is_no_other_recipe() -> None:
    [plain] = recipes(TrainConfig(), "float32")
    [same] = recipes(TrainConfig(eval_dtype="float32"), "float32")
    assert plain == same


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


def test_the_headline_preset_trains_as_published_and_chooses_on_train() -> None:
    headline, pictures, paper = (
        resolve(TrainConfig, "train", {}, preset=preset)
        for preset in ("agnews-llama2-13b", "cifar100-beit", "paper")
    )
    assert headline == replace(paper, lr=(5e-5,), weight_decay=0.01, select="val", ties="loss")
    assert pictures == replace(headline, lr=paper.lr)


def test_the_preset_trains_and_can_be_taken_apart(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    options = ["--preset", "paper", "--cache", tiny_cache, "--runs", tmp_path, "--device", "cpu"]
    options += ["--attn", "gaam", "--attn", "gqgaam:published=true,width=16", "--epochs", 2]
    options += ["--seeds", 2]
    trained = gaam("train", *options)
    assert trained.code == 0, trained.err
    report = gaam("report", tmp_path, "--json").out
    assert "gqgaam:init=xavier-normal,published=true,width=16" in report
    parts = ["--set", "loss-scale=none", "--set", "clip-order=unscale-first", "--dtype", "float32"]
    assert gaam("train", *options, *parts).code == 0
    refused = gaam("train", *options, "--set", "loss-scale=none")
    assert refused.code == 2
    assert "loses small gradients" in refused.err


GROUPED = ("gqa", "mqa", "gqgaam")


@pytest.mark.parametrize("name", GROUPED)
def test_published_grouped_queries_start_xavier_normal_and_each_alone(name: str) -> None:
    """Width 512: a normal distribution has values beyond the bounds of the uniform one."""
    for options, normal, published in (
        ("", False, False),
        (":published=true", True, True),
        (":init=xavier-normal", True, False),
        (":published=true,init=xavier-uniform", False, True),
    ):
        spec = parse_attention(name + options)
        assert parse_attention(str(spec)) == spec
        torch.manual_seed(0)
        mechanism = build(spec, "mechanism", 8, 32)
        assert isinstance(mechanism, MappedGroupedQuery)
        assert mechanism.core.published is published
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            weight = getattr(mechanism.core, projection).weight
            std = (2 / sum(weight.shape)) ** 0.5
            assert weight.std().item() == pytest.approx(std, rel=0.02)
            assert (weight.abs().max().item() > 1.01 * std * 3**0.5) == normal
            assert not getattr(mechanism.core, projection).bias.any()


@pytest.mark.parametrize("name", GROUPED)
def test_runs_that_started_uniform_are_not_those_of_today(name: str) -> None:
    """Runs of 0.1.0 are called ``published=true`` and no more: another name, another key."""
    assert str(parse_attention(f"{name}:published=true")) == (
        f"{name}:init=xavier-normal,published=true"
    )


def test_a_run_of_the_protocol_is_ablated_under_it(config: TrainConfig) -> None:
    parts = {"dtype": "float16", "clip_order": "clip-first", "ties": "first", "select": "test"}
    (run,) = gaam_decoder.train(replace(config, clip_grad_norm=1000.0, **parts))
    gaam_decoder.ablate(run.path, num_layers=2)
    runs = gaam_decoder.load_runs(config.runs)
    assert len(runs) > 2
    for other in runs:
        assert {name: other.recipe[name] for name in parts} == parts


def test_a_run_that_failed_in_float16_is_told_of_bfloat16(config: TrainConfig) -> None:
    (failed,) = gaam_decoder.train(replace(config, dtype="float16", lr=1e30, epochs=2))
    assert set(failed.failed) == {0, 1}
    assert failed.log[0]["loss_scale"] <= 65536.0
    assert what_to_try(failed).endswith("--dtype bfloat16, whose range is that of float32")
    [table] = build_tables([failed])
    assert "2 seeds failed" in "".join(warnings(table))
