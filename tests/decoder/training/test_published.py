"""The published protocol: what it is, each part of it alone, and recipes that have none of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaam_cache.cache import open_cache
from gaam_cache.settings import resolve
from gaam_decoder import TrainConfig
from gaam_decoder.training.grid import recipes
from tests.conftest import GOLDEN


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
