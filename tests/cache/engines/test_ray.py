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

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.engines._base import load_engine
from gaam_cache.engines._claims import is_alive
from gaam_cache.engines.ray import _enter
from gaam_cache.errors import ConfigError
from gaam_cache.messages import install
from gaam_cache.placing import Placing
from tests.cache.engines import tasks
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]


def test_a_node_that_does_not_see_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here, away = str(tmp_path), str(tmp_path / "away")
    _enter([here, here])
    for bad in ([away], [here, away]):
        with pytest.raises(ConfigError, match="does not see the folder") as caught:
            _enter(bad)
        assert os.uname().nodename in str(caught.value)


def test_what_ray_cannot_do_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    bad = {
        "names GPUs of this machine": {"devices": "0,1"},
        "is one device of this machine": {"device": "cuda:0"},
        "no Ray cluster at '127.0.0.1:1'": {"address": "127.0.0.1:1"},
        "no Ray cluster at 'ray://no host:99999999'": {"address": "ray://no host:99999999"},
    }
    for message, options in bad.items():
        nowhere = str(tmp_path / "nowhere")
        config = ExtractConfig(engine="ray", out=tmp_path / "out", dataset=nowhere, **options)  # type: ignore[arg-type]
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

    if ray.cluster_resources().get("GPU"):
        pytest.skip("there are GPUs")
    placing = Placing(engine=engine, devices="2")
    task = tasks.task_of("echo", None, tmp_path)._replace(device="cuda")
    with pytest.raises(ConfigError, match="no worker can begin"):
        load_engine(placing).run(task, placing, lambda *said: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["SIGINT", "SIGKILL"])
def test_whatever_ends_the_caller_ends_its_workers(stop: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.cache.engines.tasks", "ray", "wait_for_ever"]
    process = subprocess.Popen([*command, str(tmp_path)], cwd=ROOT, env=environ)
    try:
        while not (found := [p for p in tmp_path.glob("pid.*") if p.read_text()]):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(getattr(signal, stop))
        assert process.wait() == (-9 if stop == "SIGKILL" else 130)
        latest = time.monotonic() + 120  # a hang
        while any(is_alive(int(path.read_text())) for path in found):
            assert time.monotonic() < latest, "a worker outlives its caller"
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_what_a_worker_that_is_killed_had_at_work_the_others_make(
    engine: str, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    """The bytes are those of one process, and stdout holds the result alone."""
    if engine == "ray":
        pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    out, alone = tmp_path / "out", tmp_path / "alone"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code = "from cli import main\nif __name__ == '__main__': main()"
    run = [sys.executable, "-c", code, "extract", "--encoder", tiny_config.encoder, "--dataset"]
    run += [tiny_config.dataset, "--quiet", "--set", "shard-rows=2", "--set", "batch-tokens=64"]
    run += ["--device", "cpu", "--json", "--out"]
    subprocess.run([*run, alone], cwd=ROOT, env=environ, check=True, capture_output=True)
    process = subprocess.Popen(
        [*run, out, "--engine", engine, "--devices", "2"],
        cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(out.glob("shards/*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    while process.poll() is None:
        try:
            claim = next(iter(out.glob("claims/*.claim")))
            os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)
        except (StopIteration, FileNotFoundError, ValueError):
            continue  # it was quicker
        break
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["missing"] == 0
    assert "died without a word" in stderr
    found = {n: b for n, b in shard_bytes(out).items() if not n.endswith(".tmp")}
    assert found.items() >= shard_bytes(alone).items()
