"""Settings as a program gives them, and what it set in torch before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.training.items import recipes


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(cache=tiny_cache, runs=tmp_path / "runs", seeds=(0,), epochs=1)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("weight_decay", 0, 0.0),
        ("weight_decay", 0.0, -0.0),
        ("weight_decay", "0.1", 0.1),
        ("weight_decay", (0.1,), 0.1),
        ("lr", "1e-3", [0.001]),
        ("clip_grad_norm", 1, 1.0),
        ("clip_grad_norm", np.float64(2), 2.0),
        ("epochs", np.int64(3), 3),
        ("batch_size", np.int32(8), 8),
        ("loss", "focal:gamma=-0.0", "focal:gamma=0"),
        ("head", "mlp:dropout=-0.0", "mlp:dropout=0"),
        ("attn", "gaam", ("gaam",)),
    ],
)
def test_one_value_spelled_twice_is_one_recipe(name: str, one: Any, other: Any) -> None:
    keys = {
        recipe.key("of a cache")
        for value in (one, other)
        for recipe in recipes(TrainConfig(**{name: value}), "float32")
    }
    assert len(keys) == 1


WRONG: list[tuple[str, Any]] = [
    *((name, value) for name in ("epochs", "batch_size") for value in (1.0, True, "3", None)),
    *(("split_seed", value) for value in (0.5, True, None)),
    *((name, v) for name in ("lr", "weight_decay") for v in ("x", "", True, None, np.ones(2), ())),
    *(("val_fraction", value) for value in ("0.1", None)),
    *(("seeds", value) for value in ((0.5,), (-1,), {1: 2}, None)),
    *(("attn", value) for value in (3, (3,), None)),
    *(("cache", value) for value in (3, None)),
    *(("allow_train_as_test", value) for value in ("no", 1, None)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_values_of_another_type_are_refused_where_they_are_given(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "-")):
        TrainConfig(**{name: value})


def test_paths_may_be_text(config: TrainConfig) -> None:
    (run,) = gaam_decoder.train(replace(config, runs=str(config.runs), cache=str(config.cache)))  # type: ignore[arg-type]
    assert gaam_decoder.report(run).text("json") == gaam_decoder.report([run]).text("json")
    assert run == run
    assert len({run, run}) == 1


def test_a_session_that_would_change_the_numbers_is_refused(config: TrainConfig) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigError, match="session"):
            gaam_decoder.train(config)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConfigError, match="session"):
        gaam_decoder.train(config)
    with torch.device("meta"), pytest.raises(ConfigError, match="session"):
        gaam_decoder.train(config)
    assert len(gaam_decoder.train(config)) == 1
