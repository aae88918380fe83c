"""Several processes of one study: the first reports, when all have done their part."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.engines._ranks import find_rank
from gaam_decoder.studying import running
from gaam_decoder.studying.place import environment
from tests.decoder.studying.tiny_study import (
    RECORDED,
    Gaam,
    command,
    written,
)

RANKS = (
    lambda number: {"RANK": number, "WORLD_SIZE": "2"},
    lambda number: {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": number,
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_LOCALID": number,
    },
    lambda number: {
        "SLURM_ARRAY_TASK_ID": number,
        "SLURM_ARRAY_TASK_MIN": "0",
        "SLURM_ARRAY_TASK_COUNT": "2",
    },
)


@pytest.mark.parametrize("number", ["0", "1"])
@pytest.mark.parametrize("says", RANKS)
def test_ranks_share_the_work_and_the_first_waits_for_it(
    says: Callable[[str], dict[str, str]],
    number: str,
    here: Path,
    gaam: Gaam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []

    def code(command: list[str], ranked: bool) -> int:
        rank = find_rank(None, environment(ranked=ranked))
        assert (rank is not None) == ranked
        done.append((command[4], ranked))
        return 0

    for name, value in says(number).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(running, "_code", code)
    results = here / "studies/tiny/results.json"
    results.unlink()
    told = gaam("study", "tiny", "--json")
    assert told.code == 0, told.err
    assert results.exists() == (number == "0")
    assert json.loads(told.out)["rank"] == {"number": int(number), "of": 2}
    assert (json.loads(told.out)["results"] is None) == (number == "1")
    part = [("plant", False), ("plant", False), ("train", True), ("train", True)]
    rest = [("train", False), ("train", False), ("ablate", False)]
    assert done == (part + rest if number == "0" else part)


@pytest.mark.slow
def test_two_ranks_make_what_one_makes(done: Path, tmp_path: Path) -> None:
    written(tmp_path)
    ranks = [
        subprocess.Popen(
            command("--json"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"RANK": number, "WORLD_SIZE": "2"},
            text=True,
        )
        for number in "01"
    ]
    told = [rank.communicate() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    assert [json.loads(out)["results"] is None for out, _ in told] == [False, True]
    for name in RECORDED:
        made = tmp_path / "studies/tiny" / name
        assert made.read_bytes() == (done / "studies/tiny" / name).read_bytes()
