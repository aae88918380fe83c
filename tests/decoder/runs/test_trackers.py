"""What every tracker promises, and what gaam does where one does not keep it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs import trackers
from gaam_decoder.runs.trackers import CURVES
from tests.decoder.configs import change, train_config, train_single_run


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        seeds=(0, 3),
        epochs=2,
        lr=0.01,
    )


def tracked_values(accumulator: Any, folder: Path) -> dict[tuple[int, str], float]:
    """By epoch and curve."""
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        (event.step, curve): event.value
        for curve in events.Tags()["scalars"]
        for event in events.Scalars(curve)
    }


def logged_values(run: RunResult, seed: int) -> dict[tuple[int, str], float]:
    """By epoch and curve."""
    return {
        (entry["epoch"], curve): entry[curve]
        for entry in run.log
        for curve in CURVES
        if entry["seed"] == seed and entry.get(curve) is not None
    }


def test_the_curves_of_a_tracker_are_those_of_the_log(config: TrainConfig) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    run = train_single_run(config, track="tensorboard")
    for seed in run.seeds:
        [folder] = (config.runs / "tensorboard").glob(f"*/seed-{seed}")
        expected = logged_values(run, seed)
        assert expected
        tracked = tracked_values(accumulator, folder)
        assert tracked == pytest.approx(expected, rel=1e-6)


TRACKERS = plugins.names(trackers.__name__)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_refused_before_training(
    name: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install {name}"):
        gaam_decoder.train(change(config, track=name))
    assert not config.runs.exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_fails_loses_no_run(
    name: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    tracker = plugins.load(trackers.__name__, name, kind="tracker")
    # a module that is always there
    monkeypatch.setattr(tracker, "needs", "json")
    monkeypatch.setattr(tracker, "write", fail)
    with pytest.warns(GaamWarning, match=rf"{name}.* gaam-.*ZeroDivisionError"):
        run = train_single_run(config, track=name)
    assert list(run.finished) == [0, 3]
