"""Everything that reads a run knows one that was not evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.runs.result import read_run
from tests.conftest import Outcome


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=0.01
    )


def test_everything_that_reads_a_run_says_that_it_was_not_evaluated(
    config: TrainConfig, gaam: Callable[..., Outcome]
) -> None:
    runs = gaam_decoder.train(replace(config, attn=("gaam", "none"), test_split="none"))
    runs += gaam_decoder.train(replace(config, attn=("none",), head="lbfgs", test_split="none"))
    for run in runs:
        again = read_run(run.path)
        assert not again.evaluated
        assert "final model" in again.title
        assert again.summary().count("not evaluated") == 1
        about = again.to_dict()
        assert about["evaluated"] is False
        assert about["majority_accuracy"] is None
        assert all(seed["accuracy"] is None for seed in about["seeds"])
        shown = gaam("inspect", run.path)
        assert shown.code == 0
        assert "majority" not in shown.out
        assert shown.out.count("not evaluated") == len(run.seeds)
        assert "attention maps are means over test rows" in shown.out
        said = gaam("inspect", run.path, "--json").out
        assert json.loads(said)["evaluated"] is False
        assert "NaN" not in said
        assert gaam("verify", run.path).code == 0
        refused = gaam("ablate", run.path)
        assert refused.code == 2
        assert "a final model has none" in refused.err
    listed = gaam("inspect", config.runs)
    assert listed.out.count("not evaluated") == sum(len(run.seeds) for run in runs)
    for shown in (listed, gaam("report", config.runs), gaam("verify", config.runs)):
        assert shown.code == 0
        assert "nan" not in shown.out.lower()
