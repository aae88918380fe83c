"""``gaam train --dry-run`` lists what is then trained, with a time for every mechanism."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_decoder import TrainConfig

SWEEPS: list[dict[str, Any]] = [
    {"attn": ("gaam", "mha"), "probe": True, "final": True, "layers": ((1, 2), None)},
    {
        "attn": ("none",),
        "lr": (1e-3, 1e-2),
        "tune_seeds": (7,),
        "train_rows": (20, None),
    },
    {"attn": ("none",), "head": ("linear", "lbfgs"), "folds": 2},
]


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=1e-3, compile="off",
        device="cpu", probe=False,
    )  # fmt: skip


@pytest.mark.parametrize("sweep", SWEEPS)
def test_what_is_listed_is_what_is_trained(
    sweep: dict[str, Any], config: TrainConfig
) -> None:
    config = replace(config, **sweep)
    listed = gaam_decoder.estimate(config)
    assert not config.runs.exists()
    runs = gaam_decoder.train(config)
    alone = [(run.title, run.seeds) for run in listed.runs if run.candidates == 1]
    chosen = sorted(
        set(runs) - {run for run in runs if (run.title, run.seeds) in alone}, key=str
    )
    assert len(chosen) == sum(run.candidates > 1 for run in listed.runs)
    assert {(run.title, run.seeds) for run in runs if run not in chosen} == set(alone)
    assert listed.trainings == sum(len(run.seeds) for run in runs)
    assert all(run.seconds and not run.done for run in listed.runs)
    assert json.loads(json.dumps(listed.to_dict()))["trainings"] == listed.trainings
    there = gaam_decoder.estimate(config)
    assert (there.trainings, there.seconds) == (0, 0)
    more = gaam_decoder.estimate(replace(config, seeds=(0, 1, 2)))
    assert {run.seeds for run in more.runs if run.seeds} == {(2,)}
