"""What is expected of a plant has the shape of what is planted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import PlantConfig, plant
from gaam_decoder.planting.expected import expected_cache

KNOWN = (
    "num_layers", "hidden_size", "pooling", "storage_dtype", "class_names", "rows", "shard_rows",
    "columns", "unlabelled",
)  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {},
    {"rows": 91, "layers": 5, "width": 3, "classes": 3, "storage_dtype": "float16", "gate": "none"},
]


def check(expected: EmbeddingCache, made: EmbeddingCache) -> None:
    mine, right = asdict(expected.plan), asdict(made.plan)
    assert {name: mine[name] for name in KNOWN} == {name: right[name] for name in KNOWN}
    assert expected.first_layer == made.first_layer
    for name in made:
        assert set(expected[name].labels) == set(range(len(made.class_names)))
        assert len(expected[name].labels) == len(made[name])
        assert expected[name].embeddings.shape == made[name].embeddings.shape
        assert expected[name].embeddings.stored == made[name].embeddings.stored


@pytest.mark.parametrize("options", OPTIONS)
def test_of_gaussian_states(options: dict[str, Any], tmp_path: Path) -> None:
    config = PlantConfig(out=tmp_path / "planted", **options)
    expected = expected_cache(config, None)
    assert not config.out.exists()
    plant(config)
    check(expected, open_cache(config.out))


@pytest.mark.parametrize("options", [{}, {"rows": 40, "classes": 2, "storage_dtype": "float32"}])
def test_of_the_states_of_a_cache(
    options: dict[str, Any], tiny_cache: Path, tmp_path: Path
) -> None:
    config = PlantConfig(out=tmp_path / "planted", from_cache=tiny_cache, gate="none", **options)
    expected = expected_cache(config, open_cache(tiny_cache))
    again = expected_cache(PlantConfig(out=tmp_path / "again", from_cache=config.out), expected)
    plant(config)
    check(expected, open_cache(config.out))
    assert np.prod(again["test"].embeddings.shape) > 0


def test_more_rows_than_there_are_is_refused_as_by_the_command(
    tiny_cache: Path, tmp_path: Path
) -> None:
    config = PlantConfig(out=tmp_path / "planted", from_cache=tiny_cache, rows=10**6)
    with pytest.raises(ConfigError, match="fewer rows than --rows"):
        expected_cache(config, open_cache(tiny_cache))
