"""Recipes of earlier versions keep their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.training.experiments import recipes
from tests.conftest import GOLDEN

RECORDS = sorted(GOLDEN.glob("v*/runs/*/run.json"))


@pytest.mark.parametrize(
    "file", RECORDS, ids=lambda file: str(file.parent.relative_to(GOLDEN))
)
def test_recipes_of_earlier_versions_keep_their_keys(file: Path) -> None:
    record = json.loads(file.read_text())
    settings = dict(record["recipe"])
    for name in ("fold", "layers"):
        settings.pop(name, None)
    config = TrainConfig(attn=(record["attention"],), **settings)
    [recipe] = recipes(config, settings["dtype"])
    assert recipe.to_dict() == record["recipe"]
    cache = open_cache(file.parents[2] / "cache")
    assert recipe.key(cache.fingerprint) == record["key"]
