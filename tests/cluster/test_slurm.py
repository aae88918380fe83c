"""The shipped batch scripts under a real SLURM of one node, with gaam as it is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gaam_cache.bundle import data_path
from tests.cluster import slurm
from tests.conftest import build_encoder, random_rows, shard_bytes, write_csv

ROOT = Path(__file__).parents[2]
SCRIPTS = data_path() / "presets" / "slurm"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm.why_not() is not None, reason=slurm.why_not() or ""),
]
ROWS = 320
SETTINGS = """
[extract]
encoder = "{root}/encoder"
dataset = "{root}/data"
shard_rows = 8
batch_tokens = 32
device = "cpu"

[train]
epochs = 4
batch_size = 8
seed_batch = 2
compile = "off"
probe = false
device = "cpu"
"""


class Cluster(NamedTuple):
    """A SLURM, with a data set, an encoder, and gaam on its path."""

    root: Path
    environ: dict[str, str]

    def run(self, *command: object, **variables: str) -> str:
        """Run a command of SLURM and wait for all jobs; what it said."""
        words, environ = [*map(str, command)], {**self.environ, **variables}
        done = subprocess.run(words, cwd=self.root, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        slurm.wait_for_jobs(self.environ)
        return done.stdout + done.stderr

    def logs(self) -> dict[str, str]:
        """What the jobs said since the last time, by the name of their files."""
        found = sorted(self.root.glob("gaam-*.log"))
        texts = {log.name: log.read_text() for log in found}
        for log in found:
            log.unlink()
        return texts


@pytest.fixture(scope="module")
def cluster_of_slurm() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gaam-slurm-") as folder:
        root = Path(folder)
        command = root / "bin" / "gaam"
        command.parent.mkdir()
        (root / "settings.toml").write_text(SETTINGS.format(root=root))
        build_encoder(root / "encoder", "bert")
        python = f"PYTHONPATH='{ROOT}' exec '{sys.executable}'"
        settings = f'case "$1" in extract|train) set -- "$@" --config {root}/settings.toml;; esac'
        run = 'from cli import main\nif __name__ == "__main__": main()'
        command.write_text(f"#!/bin/sh\n{settings}\n{python} -c '{run}' \"$@\"\n")
        command.chmod(0o755)
        write_csv(root / "data" / "train.csv", [("a", "goal"), *random_rows(ROWS - 61, 3)])
        write_csv(root / "data" / "test.csv", random_rows(60, 4))
        (root / "slurm").mkdir()
        with slurm.slurm(root / "slurm") as environ:
            environ |= {"OMP_NUM_THREADS": "1", "PATH": f"{command.parent}:{environ['PATH']}"}
            yield Cluster(root, environ)


@pytest.fixture(scope="module")
def alone(cluster_of_slurm: Cluster) -> dict[str, bytes]:
    """A cache that one process made."""
    out = cluster_of_slurm.root / "alone"
    cluster_of_slurm.run("gaam", "extract", "--out", out, "--quiet")
    return shard_bytes(out)


ONE_CORE = ("--cpus-per-task=1",)
JOBS = {
    "array": ("sbatch", *ONE_CORE, SCRIPTS / "array.sbatch"),
    "nodes": ("sbatch", *ONE_CORE, "--nodes=1", "--ntasks-per-node=3", SCRIPTS / "nodes.sbatch"),
    "one-node": ("sbatch", "--gpus-per-node=2", SCRIPTS / "one-node.sbatch"),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_shipped_script_makes_the_bytes_of_one_process(
    name: str, cluster_of_slurm: Cluster, alone: dict[str, bytes]
) -> None:
    out = cluster_of_slurm.root / name
    cluster_of_slurm.run(*JOBS[name], "extract", "--out", out, "--quiet")
    said = "\n".join(cluster_of_slurm.logs().values())
    assert shard_bytes(out) == alone, said
    assert {path.name for path in out.iterdir()} == {"cache.json", "shards"}
    assert "is complete" in said
    made = sum(int(count) for count in re.findall(r"this run +([\d,]+) of", said))
    assert made == len(list((out / "shards").glob("*.json")))
    assert "Traceback" not in said
    assert "error" not in said


def test_what_a_task_that_is_killed_had_at_work_the_others_do(
    cluster_of_slurm: Cluster, alone: dict[str, bytes]
) -> None:
    out = cluster_of_slurm.root / "killed"
    command = ["sbatch", "--no-requeue", *JOBS["array"][1:], "extract", "--out", out, "--quiet"]
    environ = cluster_of_slurm.environ
    subprocess.run([*map(str, command)], cwd=cluster_of_slurm.root, env=environ, check=True)
    while not list(out.glob("shards/*.json")):
        time.sleep(0.05)
    claims = [claim.read_text() for claim in out.glob("claims/*.claim")]
    if pids := {int(pid) for text in claims for pid in re.findall(r'"pid": (\d+)', text)}:
        os.kill(min(pids), signal.SIGKILL)
    slurm.wait_for_jobs(environ)
    said = cluster_of_slurm.logs()
    left = {name: of for name, of in shard_bytes(out).items() if "/." not in name}
    assert left == alone, said  # of a task that is killed a temporary file may stay
    assert any("is complete" in text for text in said.values()), said


def test_the_chain_extracts_trains_and_reports(
    cluster_of_slurm: Cluster, alone: dict[str, bytes]
) -> None:
    cluster_of_slurm.run("sh", SCRIPTS / "chain.sh", SBATCH_CPUS_PER_TASK="1")
    logs, root = cluster_of_slurm.logs(), cluster_of_slurm.root
    assert shard_bytes(root / "cache") == alone, logs
    names = {path.name.split("-linear")[0] for path in (root / "runs").iterdir()}
    assert names == {"gaam", "mha", "none"}
    assert "mha" in (root / "runs.html").read_text()
    assert any("next: gaam report" in text for text in logs.values())
