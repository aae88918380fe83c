"""The study that a beginner runs goes through from top to bottom, smaller."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import gaam_decoder

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "data" / "studies" / "quickstart.py"
ATTN = ("gaam", "laplace", "dot", "none")


@pytest.fixture
def small(encoders: dict[str, Path], tmp_path: Path) -> Path:
    """The study with other constants in its first cell."""
    text = STUDY.read_text("utf-8")
    for name, value in {
        "ENCODER": repr(str(encoders["bert"])),
        "ROWS": "40",
        "SEEDS": "2",
        "EPOCHS": "2",
    }.items():
        text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        assert count == 1, name
    file = tmp_path / "study.py"
    file.write_text(text, "utf-8")
    return file


def test_it_runs_from_top_to_bottom_and_writes_into_one_folder(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    runpy.run_path(str(small))
    assert [one.name for one in work.iterdir()] == ["quickstart"]
    runs = {
        one.name.split("-")[0].split("_")[0]
        for one in (work / "quickstart" / "runs").glob("*-linear-*")
    }
    assert runs == set(ATTN)
    shown = capsys.readouterr().out
    assert str(gaam_decoder.report("quickstart/runs", baseline="none")) in shown
    last = shown.strip().splitlines()[-3:]
    classes = {"Business", "Sci/Tech", "Sports", "World"}
    assert all(line.partition(": ")[0] in classes for line in last)
