"""The promises of every engine: the same tasks in workers of each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.common.errors import GaamError, GaamWarning
from gaam_cache.config import ExtractConfig, WorkerConfig
from gaam_cache.workers import load_engine
from tests.cache.workers import tasks
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many workers on any machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


class Run:
    """A task that ran: results, what workers sent, warnings of the caller."""

    def __init__(self, engine: str, name: str, argument: Any, folder: Path) -> None:
        self.messages: list[tuple[int, str, Any]] = []
        self.folder = folder
        config = WorkerConfig(engine=engine, devices="2")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            task = tasks.task_of(name, argument, folder)
            self.results = load_engine(config).run(task, config, self.on_message)
        self.warnings = [
            str(warning.message)
            for warning in caught
            if warning.category is GaamWarning
        ]

    def on_message(self, number: int, kind: str, value: Any) -> None:
        if kind != "waiting":
            self.messages.append((number, kind, value))
        if kind in ("here", "died"):
            tasks.note(self.folder, kind)

    def messages_of(self, worker: int) -> list[tuple[str, Any]]:
        return [
            (kind, value) for number, kind, value in self.messages if number == worker
        ]

    def kinds(self) -> list[tuple[int, str]]:
        """The numbers of the workers that sent messages, and their kinds."""
        return [(number, kind) for number, kind, _ in self.messages]


def test_what_workers_are_given_say_and_return_arrives_whole_and_in_order(
    engine: str, tmp_path: Path
) -> None:
    argument = {"text": "\U0001f600", "numbers": (1, 2.5), "path": tmp_path}
    run = Run(engine, "talk", argument, tmp_path)
    # a Ray that could not place one before the other was done has no need of it
    counts = [2] if engine == "local" else [1, 2]
    assert len(run.results) in counts
    processes = {os.getpid(), *(process for _, _, process, _ in run.results)}
    assert len(processes) == len(run.results) + 1
    workers = {worker.number for _, worker, *_ in run.results}
    assert workers == {number for number, *_ in run.messages}
    for returned, worker, _, large in run.results:
        assert returned == argument
        assert worker.total == 2
        assert large == bytes(tasks.LARGE)
        warning = ("warning", f"worker {worker.number} warns")
        assert run.messages_of(worker.number) == [
            *(("count", number) for number in range(100)),
            ("large", bytes(tasks.LARGE)),
            *[warning] * 3,
        ]
    assert not list(tmp_path.iterdir())


def test_an_error_arrives_as_itself(engine: str, tmp_path: Path) -> None:
    # of Ray, whose workers take long to start, one
    errors = tasks.ERRORS if engine == "local" else tasks.ERRORS[-1:]
    for cls in errors:
        direct = cls("it went wrong", **tasks.DETAILS)
        with pytest.raises(GaamError) as caught:
            Run(engine, "fail", cls.__name__, tmp_path)
        assert type(caught.value) is cls
        assert str(caught.value) == str(direct)
        assert caught.value.details == direct.details
    with pytest.raises(OSError, match="No space left") as refused:
        Run(engine, "fail", "OSError", tmp_path)
    assert refused.value.errno == 28


def test_an_error_that_cannot_be_sent_is_told(engine: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="code 7"):
        Run(engine, "fail", "UnsendableError", tmp_path)


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_is_named_and_started_again(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="Ray (the extra 'ray') is not installed")
    run = Run("ray", "die_twice", tmp_path, tmp_path)
    assert sorted(run.results) == [0, 1]
    assert Counter(run.kinds()) == {(0, "here"): 3, (0, "died"): 2}
    assert all("worker 1 " in text for text in run.warnings)


def test_a_worker_that_dies_is_named_and_the_others_go_on(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.workers.engines.ray.MOST_RESTARTS", 0)
    run = Run(engine, "die_always", tmp_path, tmp_path)
    assert run.results == [1]
    assert run.kinds() == [(0, "here"), (0, "died")]
    [text] = run.warnings
    assert "worker 1 " in text
    with pytest.raises(GaamError, match="--devices"):
        Run(engine, "all_die", tmp_path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_what_a_worker_that_is_killed_had_at_work_the_others_make(
    engine: str, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    """The bytes are those of one process, and stdout holds the result alone."""
    if engine == "ray":
        pytest.importorskip(
            "ray", reason="the package ray (extra 'ray') is not installed"
        )
    out = tmp_path / "out"
    alone = tmp_path / "alone"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code = "from cli import main\nif __name__ == '__main__': main()"
    command: list[str | Path] = [
        *(sys.executable, "-c", code, "extract", "--quiet", "--json"),
        *("--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset),
        *("--set", "shard-rows=2", "--set", "batch-tokens=64", "--device", "cpu"),
        "--out",
    ]
    subprocess.run(
        [*command, alone], cwd=ROOT, env=environ, check=True, capture_output=True
    )
    process = subprocess.Popen(
        [*command, out, "--engine", engine, "--devices", "2"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(out.glob("shards/*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    while process.poll() is None and not kill_a_holder(out):
        pass
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["missing"] == 0
    assert re.search("worker [12] ", stderr)
    files = {
        name: data
        for name, data in shard_bytes(out).items()
        if not name.endswith(".tmp")
    }
    assert files.items() >= shard_bytes(alone).items()


def kill_a_holder(cache: Path) -> bool:
    """Kill a process that holds a lease, unless it was quicker."""
    try:
        lease = next(iter(cache.glob("leases/*.lease")))
        process = json.loads(lease.read_text())["pid"]
        os.kill(process, signal.SIGKILL)
    except (StopIteration, FileNotFoundError, ValueError):
        return False
    return True
