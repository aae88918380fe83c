"""The published protocol: what it is, each part of it alone, and recipes that have none of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.training.experiments import recipes
from tests.conftest import GOLDEN


@pytest.mark.parametrize(
    "run", sorted(GOLDEN.glob("v*/runs/*/run.json")), ids=lambda p: p.parent
)
def test_recipes_of_earlier_versions_keep_their_keys(run: Path) -> None:
    about = json.loads(run.read_text())
    given = {k: v for k, v in about["recipe"].items() if k not in ("fold", "layers")}
    [recipe] = recipes(TrainConfig(attn=(about["attention"],), **given), given["dtype"])
    assert recipe.to_dict() == about["recipe"]
    cache = open_cache(run.parents[2] / "cache")
    assert recipe.key(cache.fingerprint) == about["key"]
