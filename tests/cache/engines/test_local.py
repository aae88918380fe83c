"""Workers of this machine: which devices there are, and that none outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gaam_cache.engines import local
from gaam_cache.engines._claims import is_alive
from gaam_cache.engines.local import local_places
from gaam_cache.errors import ConfigError
from gaam_cache.placing import Placing, check_placing, parse_devices

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=[0, 1, 2, 8])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(local, "_cores", lambda: [*range(6)])
    monkeypatch.setattr(local, "_memory_nodes", lambda: 3)
    return count


def test_as_many_places_as_asked_for_and_no_more_than_there_are(gpus: int) -> None:
    for device in ("auto", "cuda", "cpu"):
        if device == "cuda" and not gpus:
            with pytest.raises(ConfigError, match="no device 'cuda'"):
                local_places(device, "2")
            continue
        on_gpus = gpus > 0 and device != "cpu"
        there, parts = (gpus, gpus) if on_gpus else (6, 3)
        wanted = {"all": [*range(parts)]} | {f"{n}": [*range(n)] for n in range(1, 12)}
        if on_gpus:
            wanted |= {"0,": [0], "1,": [1], "1,0": [1, 0], "0,7": [0, 7], "7,3,5": [7, 3, 5]}
        for asked, numbers in wanted.items():
            if max(numbers) >= there:
                with pytest.raises(ConfigError, match="more than there is") as caught:
                    local_places(device, asked)
                assert caught.value.details.keys() >= {"expected", "found"}
                continue
            places = local_places(device, asked)
            names = [f"cuda:{n}" if on_gpus else "cpu" for n in numbers]
            assert [place.device for place in places] == names
            assert [place.number for place in places] == [*range(len(numbers))]
            assert {(place.total, place.here) for place in places} == {(len(numbers),) * 2}
        if not on_gpus:
            for asked in ("0,1", "0,"):
                with pytest.raises(ConfigError, match="more than there is"):
                    local_places(device, asked)
    with pytest.raises(ConfigError, match=r"is one device|no device"):
        local_places("cuda:0", "2")


GOOD = {
    **{text: text for text in ("1", "2", "17", "4096", "all", "0,", "0,2", "3,1,2", "10,")},
    " 2 ": "2",
    "0, 2": "0,2",
    3: "3",
    ("0", "2"): "0,2",
    ("2",): "2",
    (0, 2): "0,2,",
    (1,): "1,",
}
BAD: list[Any] = [
    "",
    " ",
    "0",
    "00",
    "01",
    "-1",
    "1.5",
    "x",
    "All",
    "0-3",
    "a,b",
    ",",
    ",1",
    "1,,2",
]
BAD += ["0,0", "1,2,1", (0, 0), (), "99999", "0,99999", "1e3", "\u0661", "1;2", True, None, 1.5, {}]


def test_devices_are_spelled_in_one_way() -> None:
    for value, expected in GOOD.items():
        assert parse_devices(value) == expected
        check_placing(Placing(devices=expected))
    for value in BAD:
        with pytest.raises((TypeError, ValueError), match=r"numbers of GPUs"):
            parse_devices(value)
        if isinstance(value, str):
            with pytest.raises(ConfigError, match="bad --devices"):
                check_placing(Placing(devices=value))


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process with two workers that have begun."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.cache.engines.tasks", "local", request.param]
    process = subprocess.Popen(
        [*command, str(tmp_path)], cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True
    )
    while len(workers(tmp_path)) < 2:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def workers(folder: Path) -> list[int]:
    """Processes of workers that have said so."""
    texts = [path.read_text() for path in folder.glob("pid.*")]
    return [int(text) for text in texts if text]


def wait_until_gone(pids: list[int]) -> None:
    latest = time.monotonic() + 300  # a hang
    while any(is_alive(pid, None) for pid in pids):
        assert time.monotonic() < latest, "a worker outlives who started it"
        time.sleep(0.05)


STOPS = {"SIGINT": 130, "SIGTERM": 130, "SIGHUP": 130, "SIGKILL": -9}


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
@pytest.mark.parametrize("stop", [["SIGINT", "SIGINT"], ["SIGTERM", "SIGINT"], ["SIGKILL"]])
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
