"""What is promised of every engine: the same tasks in workers of each."""

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


class Ran:
    """What came of a task: results, what workers said, warnings of the caller."""

    def __init__(self, engine: str, name: str, argument: Any, folder: Path) -> None:
        self.said: list[tuple[int, str, Any]] = []
        self.folder = folder
        placing = WorkerConfig(engine=engine, devices="2")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            task = tasks.task_of(name, argument, folder)
            self.results = load_engine(placing).run(task, placing, self.hear)
        self.warnings = [str(w.message) for w in caught if w.category is GaamWarning]

    def hear(self, number: int, kind: str, value: Any) -> None:
        if kind != "waiting":
            self.said.append((number, kind, value))
        if kind in ("here", "died"):
            tasks.note(self.folder, kind)


def test_what_workers_are_given_say_and_return_arrives_whole_and_in_order(
    engine: str, tmp_path: Path
) -> None:
    argument = {"text": "\U0001f600", "numbers": (1, 2.5), "path": tmp_path}
    ran = Ran(engine, "talk", argument, tmp_path)
    # a Ray that could not place one before the other was done has no need of it
    assert len(ran.results) == 2 if engine == "local" else 1 <= len(ran.results) <= 2
    assert (
        len({os.getpid(), *(pid for _, _, pid, _ in ran.results)})
        == len(ran.results) + 1
    )
    assert {place.number for _, place, *_ in ran.results} == {
        number for number, *_ in ran.said
    }
    for back, place, _, large in ran.results:
        assert (back, place.total, large) == (argument, 2, bytes(tasks.LARGE))
        said = [
            (kind, value) for number, kind, value in ran.said if number == place.number
        ]
        warned = ("warning", f"worker {place.number} warns")
        counted = [("count", number) for number in range(100)]
        assert said == [*counted, ("large", bytes(tasks.LARGE)), *[warned] * 3]
    assert not list(tmp_path.iterdir())


def test_an_error_arrives_as_itself_or_is_said(engine: str, tmp_path: Path) -> None:
    # of Ray, whose workers take long to start, one
    for cls in tasks.ERRORS if engine == "local" else tasks.ERRORS[-1:]:
        direct = cls("it went wrong", **tasks.DETAILS)
        with pytest.raises(GaamError) as caught:
            Ran(engine, "fail", cls.__name__, tmp_path)
        assert type(caught.value) is cls
        assert (str(caught.value), caught.value.details) == (
            str(direct),
            direct.details,
        )
    with pytest.raises(OSError, match="No space left") as refused:
        Ran(engine, "fail", "OSError", tmp_path)
    assert refused.value.errno == 28
    with pytest.raises(RuntimeError, match="code 7"):
        Ran(engine, "fail", "UnsendableError", tmp_path)


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_is_named_and_started_again(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="Ray (the extra 'ray') is not installed")
    ran = Ran("ray", "die_twice", tmp_path, tmp_path)
    assert sorted(ran.results) == [0, 1]
    counts = Counter((number, kind) for number, kind, _ in ran.said)
    assert counts == {(0, "here"): 3, (0, "died"): 2}
    assert all("worker 1 " in text for text in ran.warnings)


def test_a_worker_that_dies_is_named_and_the_others_go_on(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.workers.engines.ray.MOST_RESTARTS", 0)
    ran = Ran(engine, "die_always", tmp_path, tmp_path)
    assert ran.results == [1]
    assert [(number, kind) for number, kind, _ in ran.said] == [
        (0, "here"),
        (0, "died"),
    ]
    [text] = ran.warnings
    assert "worker 1 " in text
    with pytest.raises(GaamError, match="--devices"):
        Ran(engine, "all_die", tmp_path, tmp_path)


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
    out, alone = tmp_path / "out", tmp_path / "alone"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code = "from cli import main\nif __name__ == '__main__': main()"
    run = [
        sys.executable,
        "-c",
        code,
        "extract",
        "--encoder",
        tiny_config.encoder,
        "--dataset",
    ]
    run += [
        tiny_config.dataset,
        "--quiet",
        "--set",
        "shard-rows=2",
        "--set",
        "batch-tokens=64",
    ]
    run += ["--device", "cpu", "--json", "--out"]
    subprocess.run(
        [*run, alone], cwd=ROOT, env=environ, check=True, capture_output=True
    )
    process = subprocess.Popen(
        [*run, out, "--engine", engine, "--devices", "2"],
        cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(out.glob("shards/*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    while process.poll() is None:
        try:
            lease = next(iter(out.glob("leases/*.lease")))
            os.kill(json.loads(lease.read_text())["pid"], signal.SIGKILL)
        except (StopIteration, FileNotFoundError, ValueError):
            continue  # it was quicker
        break
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["missing"] == 0
    assert re.search("worker [12] ", stderr)
    found = {n: b for n, b in shard_bytes(out).items() if not n.endswith(".tmp")}
    assert found.items() >= shard_bytes(alone).items()
