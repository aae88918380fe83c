"""What is particular about workers on Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.engines._base import load_engine
from gaam_cache.engines._claims import is_alive
from gaam_cache.engines.ray import _look, _Sight
from gaam_cache.errors import ConfigError
from gaam_cache.messages import install
from gaam_cache.placing import Placing
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is seen; whatever a look does to the current one is undone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".seen").write_text("token")
    (tmp_path / "plan").touch()
    return tmp_path


def sight(root: Path, **other: object) -> _Sight:
    found = _Sight(str(root), str(root / ".seen"), "token", (str(root / "plan"),))
    return found._replace(**other)


def test_a_node_that_does_not_see_the_folder_is_named_with_what_is_missing(folder: Path) -> None:
    _look(sight(folder))
    bad = {
        "another current folder": sight(folder, folder=str(folder / "away")),
        "no probe": sight(folder, probe=str(folder / ".other")),
        "another folder of the same name": sight(folder, token="another"),
        "a folder in its place": sight(folder, probe=str(folder)),
        "no cache": sight(folder, files=(str(folder / "plan"), str(folder / "away" / "plan"))),
    }
    for name, each in bad.items():
        with pytest.raises(ConfigError, match="does not see the folder") as caught:
            _look(each)
        assert caught.value.details.keys() == {"expected", "found", "where", "to do"}, name
        assert caught.value.exit_code == 2
        assert os.uname().nodename in str(caught.value)


def test_what_ray_cannot_do_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    monkeypatch.setattr(
        "gaam_cache.extraction.workers.read_rows", lambda *a, **k: pytest.fail("rows were read")
    )
    bad = {
        "names GPUs of this machine": {"devices": "0,1"},
        "is one device of this machine": {"device": "cuda:0"},
        "no Ray cluster at '127.0.0.1:1'": {"address": "127.0.0.1:1"},
        "no Ray cluster at 'ray://127.0.0.1:1'": {"address": "ray://127.0.0.1:1"},
        "no Ray cluster at '127.0.0.1:99999999'": {"address": "127.0.0.1:99999999"},
        "no Ray cluster at 'no host:1'": {"address": "no host:1"},
    }
    import gaam_cache

    for message, options in bad.items():
        config = ExtractConfig(engine="ray", out=tmp_path / "out", **options)  # type: ignore[arg-type]
        with pytest.raises(ConfigError) as caught:
            gaam_cache.extract(config)
        assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="needs Ray") as caught:
        load_engine(Placing(engine="ray")).check("cpu", Placing(engine="ray"))
    assert caught.value.details["to do"] == install("ray")


@pytest.mark.parametrize("engine", ["ray"], indirect=True)
def test_gpus_that_a_cluster_of_this_machine_lacks_are_not_waited_for(
    engine: str, tmp_path: Path
) -> None:
    import ray

    from tests.cache.engines import tasks

    if ray.cluster_resources().get("GPU"):
        pytest.skip("there are GPUs")
    placing = Placing(engine=engine, devices="2")
    task = tasks.task_of("echo", None, tmp_path)._replace(device="cuda")
    with pytest.raises(ConfigError, match="no worker can begin"):
        load_engine(placing).run(task, placing, lambda *said: None)
    assert not list(tmp_path.iterdir())


def command(*arguments: object) -> list[str]:
    code = "from cli import main\nif __name__ == '__main__': main()"
    return [sys.executable, "-c", code, *map(str, arguments)]


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_whatever_ends_the_caller_ends_its_workers(stop: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cache.engines.tasks", "ray", "wait_for_ever", str(tmp_path)],
        cwd=ROOT,
        env=environ,
    )
    try:
        while len(found := [p for p in tmp_path.glob("pid.*") if p.read_text()]) < 1:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(getattr(signal, stop))
        assert process.wait() == (-9 if stop == "SIGKILL" else 130)
        latest = time.monotonic() + 120  # a hang
        for path in found:
            while is_alive(int(path.read_text()), None):
                assert time.monotonic() < latest, "a worker outlives its caller"
                time.sleep(0.1)
        if stop != "SIGKILL":
            assert not list(tmp_path.glob(".seen-*"))
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_stdout_to_the_command(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    """Ray tells of it on stdout, unless it is kept from that."""
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    out = tmp_path / "out"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    places = ("--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset, "--quiet")
    more = ("--set", "shard-rows=2", "--set", "batch-tokens=64", "--device", "cpu", "--json")
    alone = tmp_path / "alone"
    run = command("extract", *places, *more, "--out", alone)
    subprocess.run(run, cwd=ROOT, env=environ, check=True, capture_output=True)
    process = subprocess.Popen(
        command("extract", *places, *more, "--engine", "ray", "--devices", 2, "--out", out),
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (leases := list(out.glob("leases/*.0"))):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    for lease in leases:
        try:
            os.kill(json.loads(lease.read_text())["pid"], signal.SIGKILL)
        except (OSError, ValueError):
            continue  # it was quicker
        break
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["shards"] == 42
    assert all(line.startswith("warning: ") for line in stderr.splitlines()), stderr
    found = {n: b for n, b in shard_bytes(out).items() if not n.endswith(".tmp")}
    assert found.items() >= shard_bytes(alone).items()
