"""What every tracker of the folder promises, and what gaam does where one does not keep it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.runs import trackers
from gaam_decoder.runs.trackers import CURVES


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 3),
        epochs=2,
        lr=0.01,
        probe=False,
    )


def test_what_is_tracked_is_what_the_log_says(config: TrainConfig) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    (run,) = gaam_decoder.train(replace(config, track="tensorboard"))
    for seed in run.seeds:
        [folder] = (config.runs / "tensorboard").glob(f"*/seed-{seed}")
        events = accumulator.EventAccumulator(str(folder))
        events.Reload()
        curves = events.Tags()["scalars"]
        found = {
            (e.step, curve): e.value for curve in curves for e in events.Scalars(curve)
        }
        log = [entry for entry in run.log if entry["seed"] == seed]
        expected = {
            (e["epoch"], c): e[c] for e in log for c in CURVES if e.get(c) is not None
        }
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", plugins.names(trackers.__name__))
def test_a_tracker_that_cannot_work_is_told_before_training_or_loses_no_run(
    name: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install {name}"):
        gaam_decoder.train(replace(config, track=name))
    assert not config.runs.exists()
    cls = plugins.load(trackers.__name__, name, kind="tracker")
    monkeypatch.setattr(cls, "needs", "json")
    monkeypatch.setattr(cls, "write", lambda *_: 1 / 0)
    with pytest.warns(GaamWarning, match=rf"{name}.* gaam-.*ZeroDivisionError"):
        (run,) = gaam_decoder.train(replace(config, track=name))
    assert list(run.finished) == [0, 3]
