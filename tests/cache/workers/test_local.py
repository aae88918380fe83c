"""Workers of this machine: which devices there are, and that none outlives who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.settings import resolve
from gaam_cache.config import ExtractConfig, WorkerConfig, check_workers, parse_devices
from gaam_cache.workers import is_alive
from gaam_cache.workers.engines import local
from gaam_cache.workers.engines.local import local_workers

ROOT = Path(__file__).parents[3]
ASKED = {"all": [0, 1, 2, 3], "1": [0], "3": [0, 1, 2], "0,": [0], "1,0": [1, 0]}


def test_as_many_places_as_asked_for_and_no_more_than_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(4):
        (tmp_path / f"node{number}").mkdir()
    monkeypatch.setattr(local, "MEMORY_NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for gpus in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpus=gpus: gpus)
        for asked, numbers in ASKED.items():
            if "," in asked and not gpus:
                continue
            places, count = local_workers("auto", asked), len(numbers)
            names = [f"cuda:{number}" if gpus else "cpu" for number in numbers]
            assert [one.device for one in places] == names
            assert [
                (one.number, one.total, one.workers_on_machine) for one in places
            ] == [(number, count, count) for number in range(count)]
        for asked in ("5", "0,7", *(["0,"] if not gpus else [])):
            with pytest.raises(ConfigError, match=f"--devices {asked}"):
                local_workers("auto", asked)
    with pytest.raises(ConfigError, match="cuda"):
        local_workers("cuda", "2")


def test_devices_are_spelled_in_one_way() -> None:
    good = {
        "1": "1",
        "all": "all",
        "0,": "0,",
        " 2 ": "2",
        "0, 2": "0,2",
        3: "3",
        (0, 2): "0,2,",
    }
    for value, expected in good.items():
        assert parse_devices(value) == expected
        check_workers(WorkerConfig(devices=expected))
    for bad in ("", "0", "-1", "1.5", "x", "0-3", ",1", "0,0", (), True):
        with pytest.raises(ConfigError, match="devices"):
            resolve(ExtractConfig, "extract", {"devices": bad})


def until(
    there: Callable[[], bool], process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait; a hang is a failure, and so is a process that ends meanwhile."""
    latest = time.monotonic() + 300
    while not there():
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
    command = [
        sys.executable,
        "-m",
        "tests.cache.workers.tasks",
        engine,
        work,
        str(tmp_path),
    ]

    def workers() -> list[int]:
        texts = [path.read_text() for path in tmp_path.glob("pid.*")]
        return [int(text) for text in texts if text]

    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as parent:
        until(lambda: len(workers()) >= (2 if engine == "local" else 1), parent)
        for name in stops:
            parent.send_signal(getattr(signal, name))
            if (
                len(stops) > 1
            ):  # a second signal is not to come before the first was seen
                until(lambda: (tmp_path / "stopping").exists())
        until(lambda: not is_alive(parent.pid))  # dead, though not yet buried
        last = -getattr(signal, stops[-1])  # what a shell shows as 130
        assert parent.wait() == (last if "SIGKILL" in stops or len(stops) > 1 else 130)
        until(lambda: not any(map(is_alive, workers())))
