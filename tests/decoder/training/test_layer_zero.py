"""Layers are called by their numbers: 0 to L of a cache with layer 0, 1 to L of the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.conftest import build_encoder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def caches(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Of the same encoder with four layers, by the number of the first that is kept."""
    root = tmp_path_factory.mktemp("zero")
    encoder = str(build_encoder(root / "encoder", "bert", num_layers=4))
    for first in (0, 1):
        gaam_cache.extract(
            ExtractConfig(
                encoder=encoder,
                dataset=str(dataset),
                out=root / str(first),
                layer_zero=not first,
            )
        )
    return {0: root / "0", 1: root / "1"}


def test_layers_are_those_of_their_numbers(caches: dict[int, Path]) -> None:
    whole = open_cache(caches[0])["train"].embeddings[:]  # layer n at place n
    for first, layers in (
        (0, "2-4"),
        (0, "0,4"),
        (0, "0-4"),
        (0, "1-4"),
        (1, "2-4"),
        (1, "1-4"),
    ):
        cache, numbers = open_cache(caches[first]), parse_numbers(layers)
        config = TrainConfig(
            lr=3e-4, cache=caches[first], layers=layers, attn=("none",), probe=False
        )
        [experiment] = plan_experiments(config, cache, CPU)
        assert experiment.recipe.layers == (
            None if len(numbers) == cache.num_layers else numbers
        )
        resident = prepare_data(cache, experiment.recipe, CPU).train.features.resident
        assert resident is not None
        np.testing.assert_array_equal(resident.numpy(), whole[:, list(numbers)])
    for first, layers in ((0, "0 1 2 3 4"), (1, "1 2 3 4")):
        cache = open_cache(caches[first])
        one_by_one = TrainConfig(
            cache=caches[first], attn=("none",), layers=layers.split(), probe=False
        )
        each = TrainConfig(
            cache=caches[first], attn=("none",), layers=["each", "2"], probe=False
        )
        assert plan_experiments(each, cache, CPU) == plan_experiments(
            one_by_one, cache, CPU
        )
    config = TrainConfig(lr=3e-4, cache=caches[1], layers="0,4", probe=False)
    with pytest.raises(ConfigError, match=r"--layers.* 1 to 4"):
        plan_experiments(config, open_cache(caches[1]), CPU)
