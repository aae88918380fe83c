"""Workers of this machine: their devices, and that none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.settings import resolve
from gaam_cache.config import ExtractConfig, WorkerConfig, check_workers, parse_devices
from gaam_cache.workers import is_alive
from gaam_cache.workers.engines import local
from gaam_cache.workers.engines.local import local_workers

ROOT = Path(__file__).parents[3]


@pytest.fixture
def four_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine of four cores, four memory nodes and four GPUs."""
    for number in range(4):
        (tmp_path / f"node{number}").mkdir()
    monkeypatch.setattr(local, "MEMORY_NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


def check_workers_of(option: str, names: list[str]) -> None:
    """Check the devices of the workers of ``--devices``, and how they are numbered."""
    workers = local_workers("auto", option)
    assert [worker.device for worker in workers] == names
    assert [worker.number for worker in workers] == list(range(len(names)))
    assert {worker.total for worker in workers} == {len(names)}
    assert {worker.workers_on_machine for worker in workers} == {len(names)}


@pytest.mark.parametrize(
    ("option", "numbers"),
    [
        ("all", [0, 1, 2, 3]),
        ("1", [0]),
        ("3", [0, 1, 2]),
        ("0,", [0]),
        ("1,0", [1, 0]),
    ],
)
def test_gpus_are_taken_as_they_are_named(
    option: str,
    numbers: list[int],
    four_places: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_workers_of(option, [f"cuda:{number}" for number in numbers])


@pytest.mark.parametrize(("option", "count"), [("all", 4), ("1", 1), ("3", 3)])
def test_as_many_places_of_a_cpu_as_asked_for(
    option: str, count: int, four_places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check_workers_of(option, ["cpu"] * count)


@pytest.mark.parametrize(
    ("option", "has_gpus"),
    [("5", True), ("0,7", True), ("5", False), ("0,7", False), ("0,", False)],
)
def test_places_that_are_not_there_are_refused(
    option: str, has_gpus: bool, four_places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpus)
    with pytest.raises(ConfigError, match=f"--devices {option}"):
        local_workers("auto", option)


def test_gpus_of_a_machine_without_one_are_refused(
    four_places: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="cuda"):
        local_workers("cuda", "2")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", "1"),
        ("all", "all"),
        ("0,", "0,"),
        (" 2 ", "2"),
        ("0, 2", "0,2"),
        (3, "3"),
        ((0, 2), "0,2,"),
    ],
)
def test_devices_are_spelled_in_one_way(value: Any, expected: str) -> None:
    assert parse_devices(value) == expected
    check_workers(WorkerConfig(devices=expected))


@pytest.mark.parametrize(
    "value", ["", "0", "-1", "1.5", "x", "0-3", ",1", "0,0", (), True]
)
def test_what_spells_no_devices_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="devices"):
        resolve(ExtractConfig, "extract", {"devices": value})


def wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait; a hang is a failure, and so is a process that ends meanwhile."""
    latest = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < latest, "a worker outlives who started it"
        assert process is None or process.poll() is None
        time.sleep(0.02)


STOPS = [
    ("local", "wait_for_ever", ["SIGINT"]),
    ("local", "compute_for_ever", ["SIGTERM", "SIGINT"]),
    ("local", "compute_for_ever", ["SIGKILL"]),
    pytest.param("ray", "wait_for_ever", ["SIGINT"], marks=pytest.mark.slow),
    pytest.param("ray", "wait_for_ever", ["SIGKILL"], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("engine", "work", "stops"), STOPS)
def test_whatever_ends_the_parent_ends_its_workers(
    engine: str, work: str, stops: list[str], tmp_path: Path
) -> None:
    """Those in a long computation with the second signal."""
    pytest.importorskip("ray" if engine == "ray" else "torch")
    module = "tests.cache.workers.tasks"
    command = [sys.executable, "-m", module, engine, work, str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    num_workers = 2 if engine == "local" else 1
    sends_two_signals = len(stops) > 1

    def workers() -> list[int]:
        texts = [path.read_text() for path in tmp_path.glob("pid.*")]
        return [int(text) for text in texts if text]

    with subprocess.Popen(command, cwd=ROOT, env=environ) as parent:
        wait_until(lambda: len(workers()) >= num_workers, parent)
        for name in stops:
            parent.send_signal(getattr(signal, name))
            # the second signal must not come before the first was seen
            if sends_two_signals:
                wait_until((tmp_path / "stopping").exists)
        # dead, though not yet buried
        wait_until(lambda: not is_alive(parent.pid))
        expected_code = 130
        if "SIGKILL" in stops or sends_two_signals:
            expected_code = -getattr(signal, stops[-1])
        assert parent.wait() == expected_code
        wait_until(lambda: not any(map(is_alive, workers())))
