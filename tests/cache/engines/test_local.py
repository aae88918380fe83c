"""Workers of this machine: which devices there are, and that none outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gaam_cache.engines import local
from gaam_cache.engines._claims import is_alive
from gaam_cache.engines.local import local_places
from gaam_cache.errors import ConfigError
from gaam_cache.placing import Placing, check_placing, parse_devices

ROOT = Path(__file__).parents[3]
ASKED = {"all": 4, "1": 1, "3": 3, "0,": [0], "1,0": [1, 0], "3,2,0": [3, 2, 0]}
NEVER = ["5", "17", "0,7"]


def test_as_many_places_as_asked_for_and_no_more_than_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(4):
        (tmp_path / f"node{number}").mkdir()
    monkeypatch.setattr(local, "NODES", tmp_path)
    monkeypatch.setattr(local, "_cores", lambda: [*range(4)])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for gpus in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus)
        for asked in [*ASKED, *NEVER]:
            wanted = ASKED.get(asked)
            if wanted is None or (isinstance(wanted, list) and not gpus):
                with pytest.raises(ConfigError, match="more than there is"):
                    local_places("auto", asked)
                continue
            numbers = [*range(wanted)] if isinstance(wanted, int) else wanted
            places, count = local_places("auto", asked), len(numbers)
            assert [one.device for one in places] == [
                f"cuda:{number}" if gpus else "cpu" for number in numbers
            ]
            assert [one.number for one in places] == [*range(count)]
            assert {(one.total, one.here) for one in places} == {(count, count)}
    with pytest.raises(ConfigError, match="no device 'cuda'"):
        local_places("cuda", "2")


GOOD = {"1": "1", "4096": "4096", "all": "all", "0,": "0,", " 2 ": "2", "0, 2": "0,2", 3: "3",
        ("2",): "2", (0, 2): "0,2,", (1,): "1,"}  # fmt: skip
BAD = ["", "0", "01", "-1", "1.5", "x", "0-3", ",1", "1,,2", "0,0", (), "99999", "\u0661", True, {}]


def test_devices_are_spelled_in_one_way() -> None:
    for value, expected in GOOD.items():
        assert parse_devices(value) == expected
        check_placing(Placing(devices=expected))
    for bad in BAD:
        with pytest.raises((TypeError, ValueError), match=r"numbers of GPUs"):
            parse_devices(bad)


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process with two workers that have begun."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.cache.engines.tasks", "local", request.param]
    process = subprocess.Popen([*command, str(tmp_path)], cwd=ROOT, env=environ, text=True)
    while len(workers(tmp_path)) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def workers(folder: Path) -> list[int]:
    """Processes of workers that have said so."""
    texts = [path.read_text() for path in folder.glob("pid.*")]
    return [int(text) for text in texts if text]


def wait_until_gone(pids: list[int]) -> None:
    latest = time.monotonic() + 300  # a hang
    while any(map(is_alive, pids)):
        assert time.monotonic() < latest, "a worker outlives who started it"
        time.sleep(0.05)


STOPS = {"SIGINT": 130, "SIGHUP": 130, "SIGKILL": -9}


@pytest.mark.parametrize("parent", ["wait_for_ever"], indirect=True)
@pytest.mark.parametrize("stop", STOPS)
def test_whatever_ends_the_parent_ends_its_workers(
    stop: str, parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    pids = workers(tmp_path)
    parent.send_signal(getattr(signal, stop))
    assert parent.wait() == STOPS[stop]
    wait_until_gone(pids)


@pytest.mark.parametrize("parent", ["compute_for_ever"], indirect=True)
@pytest.mark.parametrize("stop", [["SIGTERM", "SIGINT"], ["SIGKILL"]])
def test_workers_in_a_long_computation_end_with_the_second_signal_to_their_parent(
    stop: list[str], parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    pids = workers(tmp_path)
    for number, name in enumerate(stop):
        parent.send_signal(getattr(signal, name))
        while number == 0 and len(stop) > 1 and not (tmp_path / "stopping").exists():
            assert parent.poll() is None
            time.sleep(0.02)
    assert parent.wait() == (130 if len(stop) > 1 else -9)
    wait_until_gone(pids)
