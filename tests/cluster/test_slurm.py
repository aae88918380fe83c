"""The shipped batch scripts under a real SLURM of one node, with gaam as it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gaam_cache.settings import data_path
from tests.cluster import slurm
from tests.conftest import build_encoder, random_rows, shard_bytes, write_csv

ROOT = Path(__file__).parents[2]
SCRIPTS = data_path() / "presets" / "slurm"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm.why_not() is not None, reason=slurm.why_not() or ""),
]
SETTINGS = """
[extract]
encoder = "{root}/encoder"
dataset = "{root}/data"
shard_rows = 8
batch_tokens = 32
device = "cpu"

[train]
epochs = 4
lr = 3e-4
batch_size = 8
seed_batch = 2
compile = "off"
probe = false
device = "cpu"
"""
GAAM = """#!/bin/sh
case "$1" in extract|train) set -- "$@" --config {root}/settings.toml;; esac
PYTHONPATH='{source}' exec '{python}' -c 'from cli import main
if __name__ == "__main__": main()' "$@"
"""


class Cluster(NamedTuple):
    """A SLURM, with a data set, an encoder, gaam on its path, and a cache that one process made."""

    root: Path
    environ: dict[str, str]

    def run(self, *command: object) -> dict[str, str]:
        """Run a command and wait for all jobs; what these said."""
        words = [*map(str, command)]
        subprocess.run(words, cwd=self.root, env=self.environ, check=True, capture_output=True)
        return self.logs()

    def logs(self) -> dict[str, str]:
        """What the jobs said since the last time, when all are done."""
        slurm.wait_for_jobs(self.environ)
        found = sorted(self.root.glob("gaam-*.log"))
        texts = {log.name: log.read_text() for log in found}
        for log in found:
            log.unlink()
        return texts


@pytest.fixture(scope="module")
def cluster_of_slurm() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gaam-slurm-") as folder:
        root = Path(folder)
        (root / "settings.toml").write_text(SETTINGS.format(root=root))
        build_encoder(root / "encoder", "bert")
        write_csv(root / "data" / "train.csv", [("a", "goal"), *random_rows(259, 3)])
        write_csv(root / "data" / "test.csv", random_rows(60, 4))
        gaam = root / "bin" / "gaam"
        gaam.parent.mkdir()
        gaam.write_text(GAAM.format(root=root, source=ROOT, python=sys.executable))
        gaam.chmod(0o755)
        (root / "slurm").mkdir()
        with slurm.slurm(root / "slurm") as environ:
            environ |= {"OMP_NUM_THREADS": "1", "PATH": f"{gaam.parent}:{environ['PATH']}"}
            environ["SBATCH_CPUS_PER_TASK"] = "1"
            cluster = Cluster(root, environ)
            cluster.run("gaam", "extract", "--out", root / "alone", "--quiet")
            yield cluster


ONE_CORE = "--cpus-per-task=1"
ARRAY = ("sbatch", ONE_CORE, "--no-requeue", SCRIPTS / "array.sbatch")
JOBS = {
    "array": ARRAY,
    "nodes": ("sbatch", ONE_CORE, "--nodes=1", "--ntasks-per-node=3", SCRIPTS / "nodes.sbatch"),
    "one-node": ("sbatch", "--gpus-per-node=2", SCRIPTS / "one-node.sbatch"),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_shipped_script_makes_the_bytes_of_one_process(
    name: str, cluster_of_slurm: Cluster
) -> None:
    out = cluster_of_slurm.root / name
    logs = cluster_of_slurm.run(*JOBS[name], "extract", "--out", out, "--quiet")
    said = "\n".join(logs.values())
    assert shard_bytes(out) == shard_bytes(cluster_of_slurm.root / "alone"), said
    assert {path.name for path in out.iterdir()} == {"cache.json", "shards"}
    assert "is complete" in said
    made = sum(int(count) for count in re.findall(r"this run +([\d,]+) of", said))
    assert made == len(list((out / "shards").glob("*.json")))
    assert not re.search("Traceback|error", said)


def test_the_chain_extracts_trains_and_reports(cluster_of_slurm: Cluster) -> None:
    logs, root = cluster_of_slurm.run("sh", SCRIPTS / "chain.sh"), cluster_of_slurm.root
    assert shard_bytes(root / "cache") == shard_bytes(root / "alone"), logs
    names = {re.split("[-_]", path.name)[0] for path in (root / "runs").iterdir()}
    assert names == {"gaam", "mha", "none"}
    assert "mha" in (root / "runs.html").read_text()
    assert any("next: gaam report" in text for text in logs.values())
