"""What every tracker of the folder promises, and what gaam does where one does not keep it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.config_checks import TRACKERS
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.trackers import CURVES, track_seeds
from gaam_decoder.runs.writing import SeedResult

Points = dict[int, list[tuple[int, dict[str, float]]]]
"""Of every seed its epochs, each with the values of curves."""
IMPORTED = {"tensorboard": "torch.utils.tensorboard", "trackio": "trackio"}
"""What a tracker cannot do without."""
pytestmark = pytest.mark.parametrize("name", plugins.names(TRACKERS))


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 3), epochs=2, lr=0.01)


@pytest.fixture
def installed(name: str) -> None:
    pytest.importorskip(IMPORTED[name], reason=f"the extra {name} is not installed")


def tensorboard_points(folder: Path) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Points = {}
    for seed in folder.glob("*/seed-*"):
        events = EventAccumulator(str(seed))
        events.Reload()
        epochs: dict[int, dict[str, float]] = {}
        for curve in events.Tags()["scalars"]:
            for event in events.Scalars(curve):
                assert curve not in epochs.setdefault(event.step, {})  # once
                epochs[event.step][curve] = event.value
        found[int(seed.name.removeprefix("seed-"))] = sorted(epochs.items())
    return found


def trackio_points(folder: Path) -> Points:
    """Read by Trackio itself, in a process of its own: its folder is that of a process."""
    code = "import json\nfrom trackio.sqlite_storage import SQLiteStorage as S\n"
    code += "print(json.dumps({r: S.get_logs('gaam', r) for r in S.get_runs('gaam')}))"
    environ = os.environ | {"TRACKIO_DIR": str(folder)}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    found: Points = {}
    for run, entries in json.loads(told).items():
        assert len({entry["step"] for entry in entries}) == len(entries)  # once
        found[int(run.rpartition(" seed ")[2])] = [
            (entry["step"], {key: entry[key] for key in CURVES if key in entry})
            for entry in entries
        ]
    return found


READERS: dict[str, Callable[[Path], Points]] = {
    "tensorboard": tensorboard_points,
    "trackio": trackio_points,
}


def logged(runs: Sequence[RunResult]) -> Points:
    """What the logs of runs say."""
    found: Points = {}
    for run in runs:
        for line in (run.path / "log.jsonl").read_text().splitlines():
            entry = json.loads(line)
            values = {key: entry[key] for key in CURVES if entry.get(key) is not None}
            found.setdefault(entry["seed"], []).append((entry["epoch"], values))
    return found


def assert_same(found: Points, expected: Points) -> None:
    assert found.keys() == expected.keys()
    for seed, epochs in expected.items():
        assert [epoch for epoch, _ in found[seed]] == [epoch for epoch, _ in epochs]
        for (_, there), (_, values) in zip(found[seed], epochs, strict=True):
            assert there == pytest.approx(values, rel=1e-6)


def files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


@pytest.mark.usefixtures("installed")
def test_what_is_tracked_is_what_the_log_says(
    name: str, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("TRACKIO_SPACE_ID", "somebody/elsewhere")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    before = files(tmp_path)
    runs = gaam_decoder.train(replace(config, track=name))
    found = READERS[name](config.runs / name)
    assert set(found) == {0, 3}
    assert all(values.keys() >= {"loss", "accuracy", "lr"} for _, values in found[0])
    assert_same(found, logged(runs))
    new = files(tmp_path) - before
    assert all(file.is_relative_to(config.runs) for file in new)
    assert not any(b"hf_secret" in file.read_bytes() for file in new)
    plain = gaam_decoder.train(replace(config, runs=tmp_path / "plain"))
    for one, other in zip(runs, plain, strict=True):
        weights = "weights.safetensors"
        assert (one.path / weights).read_bytes() == (other.path / weights).read_bytes()
    assert gaam_decoder.load_runs(config.runs)[0].path == runs[0].path  # it is no run


@pytest.mark.usefixtures("installed")
def test_seeds_that_are_trained_again_are_there_once(name: str, tmp_path: Path) -> None:
    def result(seed: int, loss: float) -> SeedResult:
        log = [{"epoch": 1, "loss": loss, "accuracy": None}, {"epoch": 2, "loss": float("nan")}]
        values: dict[str, Any] = dict.fromkeys(SeedResult.__slots__)
        return SeedResult(**values | {"seed": seed, "log": log})

    for loss in (3.0, 2.0):
        track_seeds(name, tmp_path, "a-b", [result(1, loss), result(2, loss)])
    track_seeds(name, tmp_path, "a-b", [result(12, 1.0)])
    track_seeds(name, tmp_path, "c", [result(4, 4.0)])
    found = READERS[name](tmp_path / name)
    assert {seed: epochs[0] for seed, epochs in found.items()} == {
        1: (1, {"loss": 2.0}),
        2: (1, {"loss": 2.0}),
        12: (1, {"loss": 1.0}),
        4: (1, {"loss": 4.0}),
    }


def test_a_package_that_is_missing_is_told_before_training(
    name: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, IMPORTED[name], None)
    with pytest.raises(ConfigError, match=rf"--set track={name} needs {name}") as error:
        gaam_decoder.train(replace(config, track=name))
    assert f"pip install {name}" in str(error.value)
    assert not config.runs.exists()


def test_a_tracker_that_fails_loses_no_run(
    name: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("it is full")

    cls = plugins.load(TRACKERS, name, kind="tracker")
    monkeypatch.setattr(cls, "check", lambda _: None)
    monkeypatch.setattr(cls, "write", fail)
    with pytest.warns(GaamWarning, match=rf"track {name} could not write curves of gaam"):
        (run,) = gaam_decoder.train(replace(config, track=name))
    assert list(run.finished) == [0, 3]
    with pytest.raises(ConfigError, match=f"did you mean '{name}'"):
        replace(config, track=name[:-1])
