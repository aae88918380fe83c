"""``gaam train --dry-run`` lists what is then trained, with the seconds of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from tests.decoder.configs import change, train_config

SWEEPS: dict[str, dict[str, Any]] = {
    "layers, with a probe and final models": {
        "attn": ("gaam", "mha"),
        "probe": True,
        "final": True,
        "layers": ((1, 2), None),
    },
    "rates by other seeds": {
        "attn": ("none",),
        "lr": (1e-3, 1e-2),
        "tune_seeds": (7,),
        "train_rows": (20, None),
    },
    "heads in folds": {"attn": ("none",), "head": ("linear", "lbfgs"), "folds": 2},
}


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS.keys())
def test_what_is_listed_is_what_is_trained(
    sweep: dict[str, Any], tiny_cache: Path, tmp_path: Path
) -> None:
    settings = {"lr": 1e-3, "compile": "off", "device": "cpu"} | sweep
    config = train_config(
        tiny_cache, tmp_path / "runs", seeds=(0, 1), epochs=2, **settings
    )
    estimate = gaam_decoder.estimate(config)
    assert not config.runs.exists()
    runs = gaam_decoder.train(config)
    assert estimate.trainings == sum(len(run.seeds) for run in runs)
    assert all(run.seconds and not run.done for run in estimate.runs)
    assert json.loads(json.dumps(estimate.to_dict()))["trainings"] == estimate.trainings

    # what is tuned has a title when its rate is chosen, what is not tuned before
    certain = {(run.title, run.seeds) for run in estimate.runs if run.candidates == 1}
    tuned = [run for run in estimate.runs if run.candidates > 1]
    titles = [(run.title, run.seeds) for run in runs]
    assert certain <= set(titles)
    assert len([title for title in titles if title not in certain]) == len(tuned)
    # a rate that tuning has yet to choose is not named
    assert not any("lr" in run.title for run in tuned)

    trained = gaam_decoder.estimate(config)
    assert trained.trainings == 0
    assert trained.seconds == 0
    more = gaam_decoder.estimate(change(config, seeds=(0, 1, 2)))
    assert {run.seeds for run in more.runs if run.seeds} == {(2,)}
