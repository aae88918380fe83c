"""Everything that reads a run knows one that was not evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.runs.result import read_run
from tests.conftest import Outcome


def test_everything_that_reads_a_run_says_that_it_was_not_evaluated(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    config = TrainConfig(lr=3e-4, cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2)
    config = replace(config, attn=("gaam", "none"), test_split="none")
    runs = gaam_decoder.train(config)
    runs += gaam_decoder.train(replace(config, attn=("none",), head="lbfgs"))
    for run in runs:
        again = read_run(run.path)
        assert "final model" in again.title
        assert again.summary().count("not evaluated") == 1
        shown = gaam("inspect", run.path)
        assert "majority" not in shown.out
        assert shown.out.count("not evaluated") == 1
        assert "attention maps are means over test rows" in shown.out
        said = gaam("inspect", run.path, "--json").out
        about = json.loads(said)
        assert (about["evaluated"], about["majority_accuracy"]) == (False, None)
        assert all(seed["accuracy"] is None for seed in about["seeds"])
        assert "NaN" not in said
        assert gaam("verify", run.path).code == 0
        refused = gaam("ablate", run.path)
        assert (refused.code, "a final model has none" in refused.err) == (2, True)
    for command in ("inspect", "report", "verify", "runs"):
        shown = gaam(command, config.runs)
        assert (shown.code, "nan" in shown.out.lower()) == (0, False)
