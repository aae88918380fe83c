"""Layers have their numbers: 0 to L of a cache with layer 0, 1 to L of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.store.reader import open_cache
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.experiments import Experiment, plan_experiments
from tests.conftest import build_encoder
from tests.decoder.configs import train_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def caches(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Of the same encoder with four layers, by the number of the first that is kept."""
    root = tmp_path_factory.mktemp("zero")
    encoder = str(build_encoder(root / "encoder", "bert", num_layers=4))
    caches = {0: root / "0", 1: root / "1"}
    for first_layer, cache in caches.items():
        config = ExtractConfig(
            encoder=encoder,
            dataset=str(dataset),
            out=cache,
            layer_zero=first_layer == 0,
        )
        gaam_cache.extract(config)
    return caches


def plan(cache: Path, layers: str | list[str]) -> list[Experiment]:
    config = train_config(cache, cache, lr=3e-4, layers=layers, attn=("none",))
    return plan_experiments(config, open_cache(cache), CPU)


@pytest.mark.parametrize(
    ("first_layer", "layers", "are_all"),
    [
        (0, "2-4", False),
        (0, "0,4", False),
        (0, "0-4", True),
        (0, "1-4", False),
        (1, "2-4", False),
        (1, "1-4", True),
    ],
)
def test_layers_are_those_of_their_numbers(
    first_layer: int, layers: str, are_all: bool, caches: dict[int, Path]
) -> None:
    # layer n stands at place n
    all_states = open_cache(caches[0])["train"].embeddings[:]
    [experiment] = plan(caches[first_layer], layers)
    numbers = parse_numbers(layers)
    assert experiment.recipe.layers == (None if are_all else numbers)
    data = prepare_data(open_cache(caches[first_layer]), experiment.recipe, CPU)
    states = data.train.features.resident
    assert states is not None
    np.testing.assert_array_equal(states.numpy(), all_states[:, list(numbers)])


@pytest.mark.parametrize(
    ("first_layer", "layers"),
    [(0, ["0", "1", "2", "3", "4"]), (1, ["1", "2", "3", "4"])],
)
def test_each_layer_is_every_layer_of_the_cache(
    first_layer: int, layers: list[str], caches: dict[int, Path]
) -> None:
    cache = caches[first_layer]
    assert plan(cache, ["each", "2"]) == plan(cache, layers)


def test_a_layer_that_the_cache_lacks_is_refused(caches: dict[int, Path]) -> None:
    with pytest.raises(ConfigError, match=r"--layers.* 1 to 4"):
        plan(caches[1], "0,4")
