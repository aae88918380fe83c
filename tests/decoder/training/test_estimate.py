"""``gaam train --dry-run``: a time for whatever can be trained, also where it will be compiled."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.expected import ExpectedCache
from gaam_decoder import TrainConfig
from gaam_decoder.training import timing
from gaam_decoder.training.arithmetic import engine
from gaam_decoder.training.estimate import estimate

MECHANISMS = tuple(plugins.names("gaam_decoder.attention"))
LEAF = "additive"
"""It calls a module on a vector that learns, which hooks on modules do not take."""
HEADS = tuple(
    name
    for name in plugins.names("gaam_decoder.heads")
    if plugins.load("gaam_decoder.heads", name, kind="head").trained_by == "steps"
)
OTHERS = tuple(product(plugins.names("gaam_decoder.losses"), ("float32", "bfloat16", "float16")))


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """As where there is a compiler, for which operations are counted; an estimate compiles none."""
    monkeypatch.setattr(engine, "missing_compiler", lambda device: None)
    # of the machine, not of the decoder; float16 takes a CPU a second
    monkeypatch.setattr(timing, "_product_speed", lambda group, engine: 1e11)
    return TrainConfig(
        cache=tiny_cache, runs=tmp_path / "runs", seeds=(0,), epochs=2, lr=1e-3, batch_size=32,
        compile="on", device="cpu",
    )  # fmt: skip


def check(config: TrainConfig) -> None:
    found = estimate(config)
    assert [run.attention for run in found.runs] == list(config.attn)
    for run in found.runs:
        assert 0 < run.seconds < float("inf"), (run.attention, config)
        assert f", compiled, {config.dtype}" in run.how, run.how


@pytest.mark.parametrize("head", HEADS)
def test_every_mechanism_with_every_head_has_an_estimate(head: str, config: TrainConfig) -> None:
    """Losses and types take turns; the mechanism that once had none meets them all."""
    for place, (loss, dtype) in enumerate(OTHERS):
        some = [name for name in MECHANISMS[place :: len(OTHERS)] if name != LEAF]
        check(replace(config, attn=(LEAF, *some), head=head, loss=loss, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_every_mechanism_with_every_head_loss_and_type_has_one(
    head: str, config: TrainConfig
) -> None:
    for loss, dtype in OTHERS:
        check(replace(config, attn=MECHANISMS, head=head, loss=loss, dtype=dtype))


def test_a_grid_of_rates_over_seeds_that_choose_has_an_estimate(config: TrainConfig) -> None:
    found = estimate(
        replace(config, attn=(LEAF,), lr=(1e-4, 1e-3), tune_seeds=(0, 1), seeds=(5, 6))
    )
    assert [run.num_seeds for run in found.runs] == [2, 2, 2]


def test_on_a_cache_that_is_expected_it_is_that_of_the_cache(config: TrainConfig) -> None:
    """But for what was timed: the same trainings, run in the same way, of rows of the same size."""
    asked = replace(
        config, attn=("gaam", LEAF, "none"), lr=(1e-4, 1e-3), tune_seeds=(0, 1), seeds=(5, 6),
        train_rows=(30, None), layers=((1, 2, 3), (2, 3)), probe=True,
    )  # fmt: skip
    cache = open_cache(config.cache)
    labels = {name: cache[name].labels for name in cache}
    expected = estimate(asked, ExpectedCache(config.cache, cache.plan, labels))
    there = estimate(asked)
    assert [replace(run, seconds=0) for run in expected.runs] == [
        replace(run, seconds=0) for run in there.runs
    ]
    assert expected.reading == there.reading
