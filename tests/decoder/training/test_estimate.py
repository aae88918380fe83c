"""``gaam train --dry-run``: a time for whatever can be trained, also where it will be compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.training import timing
from gaam_decoder.training.arithmetic import engine
from gaam_decoder.training.estimate import estimate
from gaam_decoder.training.items import plan_items
from tests.conftest import Outcome

MECHANISMS = tuple(plugins.names("gaam_decoder.attention"))
HEADS = plugins.names("gaam_decoder.heads")
LOSSES = plugins.names("gaam_decoder.losses")


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """Operations are counted where there is a compiler; an estimate compiles nothing."""
    monkeypatch.setattr(engine, "missing_compiler", lambda device: None)
    return TrainConfig(
        cache=tiny_cache, runs=tmp_path / "runs", seeds=(0,), epochs=2, lr=1e-3, batch_size=8,
        compile="on", device="cpu",
    )  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_every_mechanism_with_every_head_loss_and_dtype_has_an_estimate(
    head: str, config: TrainConfig
) -> None:
    fitted = plugins.load("gaam_decoder.heads", head, kind="head").trained_by != "steps"
    dtypes = ("float32",) if fitted else ("float32", "bfloat16", "float16")
    losses = ("cross_entropy",) if fitted else LOSSES
    attn = ("none", "layer_mean") if fitted else MECHANISMS
    for loss, dtype in product(losses, dtypes):
        options = {"attn": attn, "head": head, "loss": loss, "dtype": dtype}
        found = estimate(TrainConfig(**{**_fields(config), **options}))
        assert [run.attention.partition(":")[0] for run in found.runs] == list(attn)
        for run in found.runs:
            assert 0 < run.seconds < float("inf"), (options, run.attention)
            assert fitted or f"compiled, {dtype}" in run.how


def _fields(config: TrainConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in TrainConfig.__dataclass_fields__}
