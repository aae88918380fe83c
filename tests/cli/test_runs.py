"""``gaam runs`` lists everything in a folder of runs: finished, damaged, unfinished."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_decoder import load_runs
from tests.conftest import GOLDEN, Outcome

Gaam = Callable[..., Outcome]
FIRST, SECOND = "gaam-linear-1f50a817-s0-1", "none-linear-f61c8b4f-s0-1"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study in the current folder."""
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_runs_alone_lists_and_folders_may_follow(gaam: Gaam, here: Path) -> None:
    said = gaam("runs")
    assert (said.code, said.err) == (0, "")
    for part in (FIRST, SECOND, "gaam + linear", "2 finished"):
        assert part in said.out
    for words in ([here / "runs", "runs"], [f"runs/{SECOND}", "runs"]):
        assert gaam("runs", *words).out == said.out
    runs = json.loads(gaam("runs", "--json").out)["runs"]
    for entry, run in zip(runs, load_runs("runs"), strict=True):
        assert (entry["name"], entry["accuracy"]) == (
            run.path.name,
            run.accuracy.mean(),
        )
        assert entry["bytes"] == sum(file.stat().st_size for file in run.path.iterdir())


def test_filters_leave_out_runs_and_never_damage(gaam: Gaam, here: Path) -> None:
    for words in (["--attn", "none"], ["--where", "cache=cache", "--attn", "none"]):
        found = json.loads(gaam("runs", "--json", *words).out)
        assert [run["name"] for run in found["runs"]] == [SECOND]
        assert found["selection"]["left_out"] == {"--attn": 1}
    (here / "runs" / FIRST / "run.json").write_text("{")
    (here / "runs" / "mha-linear-00000000-s0-1").mkdir()
    for filtered in ([], ["--attn", "none"]):
        said = gaam("runs", "--json", *filtered)
        states = [run["state"] for run in json.loads(said.out)["runs"]]
        assert (said.code, states) == (3, ["damaged", "damaged", "finished"])
    assert "DAMAGED" in gaam("runs").out
