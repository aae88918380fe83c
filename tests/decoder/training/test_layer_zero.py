"""Layers are called by their numbers: 0 to L of a cache with layer 0, 1 to L of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.number_lists import parse_layers
from gaam_decoder.reports.sections._base import sections
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.listing import verify
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.grid import plan_items
from tests.conftest import Outcome, build_encoder


@pytest.fixture(scope="module")
def caches(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Of the same encoder with four layers, by the number of the first that is kept."""
    root = tmp_path_factory.mktemp("zero")
    encoder = build_encoder(root / "encoder", "bert", num_layers=4)
    found = {}
    for first in (0, 1):
        config = ExtractConfig(
            encoder=str(encoder), dataset=str(dataset), out=root / str(first),
            layer_zero=first == 0,
        )  # fmt: skip
        gaam_cache.extract(config)
        found[first] = config.out
    return found


def config_of(cache: Path, runs: Path, **options: object) -> TrainConfig:
    settings = {"attn": ("gaam:heads=1",), "seeds": (0,), "epochs": 1, "lr": 0.01}
    return TrainConfig(cache=cache, runs=runs, **(settings | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("layers", ["2-4", "0,4", "0-4", "1-4"])
def test_layers_are_those_of_their_numbers(
    layers: str, first: int, caches: dict[int, Path], tmp_path: Path
) -> None:
    config = config_of(caches[first], tmp_path, layers=layers, attn=("none",))
    cache = open_cache(caches[first])
    cpu = torch.device("cpu")
    if first == 1 and "0" in layers:
        with pytest.raises(ConfigError, match="--layers from 1 to 4") as caught:
            plan_items(config, cache, cpu)
        assert "layer-zero" in str(caught.value)
        return
    [item] = plan_items(config, cache, cpu)
    numbers = parse_layers(layers)
    assert item.recipe.layers == (None if len(numbers) == cache.num_layers else numbers)
    data = prepare_data(cache, item.recipe, cpu)
    assert data.train.features.resident is not None
    whole = open_cache(caches[0])["train"].embeddings[:]  # layer n at place n
    np.testing.assert_array_equal(data.train.features.resident.numpy(), whole[:, list(numbers)])


@pytest.mark.parametrize("first", [0, 1])
def test_runs_reports_and_ablations_number_layers_alike(
    first: int, caches: dict[int, Path], tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    numbers = tuple(range(first, 5))
    [run] = gaam_decoder.train(config_of(caches[first], tmp_path))
    assert run.layer_numbers == numbers
    about = json.loads((run.path / "run.json").read_text())
    assert about["cache"].get("first_layer", 1) == first
    assert ("first_layer" in about["cache"]) == (first == 0)
    importance = importance_of([run])
    assert importance is not None
    assert importance.layers == numbers
    assert f"layer {first} " in gaam("inspect", run.path).out
    [table] = build_tables([run])
    assert ("5 layers (0 to 4) x 32" in table.title()) == (first == 0)
    assert ("4 layers x 32" in table.title()) == (first == 1)
    (found,) = [section for section in sections(table) if section.name == "importance"]
    (axes,) = found.pictures[0].draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [*map(str, numbers)]
    ablation = gaam_decoder.ablate(run.path, num_layers=2)
    groups = {group.name: group.layers for group in ablation.groups}
    assert groups["all"] == numbers
    order = sorted(numbers, key=lambda n: -importance.factor[numbers.index(n)])
    assert groups["high"] == tuple(sorted(order[:2]))
    assert groups["low"] == tuple(sorted(order[-2:]))
    for trained in gaam_decoder.load_runs(tmp_path):
        assert set(trained.layer_numbers) <= set(numbers)
    assert verify(tmp_path).good
