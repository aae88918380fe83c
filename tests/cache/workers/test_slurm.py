"""The shipped batch scripts, run by stand-ins for sbatch and srun that set what SLURM sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.settings import data_path
from gaam_cache.config import ExtractConfig
from tests.conftest import random_rows, shard_bytes, write_csv

ROOT = Path(__file__).parents[3]
SCRIPTS = data_path() / "presets" / "slurm"
PROGRAMS = {
    "sbatch": """#!{python}
import os, subprocess, sys
at = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("-"))
arrays = [one.replace("=", "-").split("-") for one in sys.argv[:at] if "--array=" in one]
last = int(arrays[0][-1]) if arrays else 0
facts = {{"SLURM_ARRAY_TASK_COUNT": str(last + 1), "SLURM_ARRAY_TASK_MIN": "0"}}
tasks = [
    subprocess.Popen(
        ["sh", *sys.argv[at:]], env={{**os.environ, **facts, "SLURM_ARRAY_TASK_ID": str(number)}},
    )
    for number in range(last + 1)
]
assert not any([task.wait() for task in tasks])
print(7)
""",
    "srun": """#!/bin/sh
while [ "$1" != gaam ]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" &
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" && wait
""",
    "gaam": """#!/bin/sh
echo "$@" >> {root}/said
[ -e {root}/only-say ] && exit
PYTHONPATH='{source}' exec '{python}' '{source}/cli.py' "$@" --quiet
""",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """With the programs first on the path."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(
            text.format(python=sys.executable, root=tmp_path, source=ROOT)
        )
        (tmp_path / name).chmod(0o755)
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }


@pytest.mark.slow
def test_a_shipped_script_makes_the_bytes_of_one_process(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    for split, rows in (("train", 60), ("test", 20)):
        write_csv(tmp_path / "data" / f"{split}.csv", random_rows(rows, rows))
    data, alone = str(tmp_path / "data"), tmp_path / "alone"
    config = ExtractConfig(
        encoder="tfidf", dataset=data, shard_rows=8, out=alone, device="cpu"
    )
    gaam_cache.extract(config)
    for name, *options in (("array", "--array=0-2"), ("nodes",), ("one-node",)):
        out = tmp_path / name
        extract = [
            "extract",
            "--encoder",
            "tfidf",
            "--dataset",
            data,
            "--set",
            "shard-rows=8",
        ]
        extract += ["--device", "cpu", "--out", str(out)]
        command = ["sbatch", *options, str(SCRIPTS / f"{name}.sbatch"), *extract]
        subprocess.run(command, env=environ, check=True, cwd=tmp_path)
        assert shard_bytes(out) == shard_bytes(alone)
        assert {path.name for path in out.iterdir()} == {"cache.json", "shards"}


@pytest.mark.slow
def test_the_chain_extracts_trains_and_reports(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "only-say").touch()
    environ |= {"TASKS": "2", "PRESET": "demo"}
    subprocess.run(["sh", SCRIPTS / "chain.sh"], env=environ, check=True, cwd=tmp_path)
    attn = "--attn gaam --attn mha --attn none --seeds 0-9"
    extract, train = (
        "extract --preset demo --out cache",
        "train --preset demo --cache cache",
    )
    assert (tmp_path / "said").read_text().splitlines() == [
        *[extract] * 2,
        *[f"{train} --runs runs {attn}"] * 2,
        "report runs --format html --out runs.html",
    ]
