"""The study that a beginner runs goes through from top to bottom, smaller."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import gaam_decoder

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "data" / "studies" / "quickstart.py"
MECHANISMS = {"gaam", "laplace", "dot", "none"}
CLASSES = {"Business", "Sci/Tech", "Sports", "World"}


@pytest.fixture
def small_study(encoders: dict[str, Path], tmp_path: Path) -> Path:
    """The study with other constants in its first cell."""
    constants = {
        "ENCODER": repr(str(encoders["bert"])),
        "ROWS": "40",
        "SEEDS": "2",
        "EPOCHS": "2",
    }
    text = STUDY.read_text("utf-8")
    for name, value in constants.items():
        text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
        assert count == 1, name
    file = tmp_path / "study.py"
    file.write_text(text, "utf-8")
    return file


def test_it_runs_from_top_to_bottom_and_writes_into_one_folder(
    small_study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    runpy.run_path(str(small_study))
    assert [path.name for path in folder.iterdir()] == ["quickstart"]
    runs = (folder / "quickstart" / "runs").glob("*-linear-*")
    assert {re.split("[-_]", run.name)[0] for run in runs} == MECHANISMS
    printed = capsys.readouterr().out
    assert str(gaam_decoder.report("quickstart/runs", baseline="none")) in printed
    last_lines = printed.strip().splitlines()[-3:]
    assert {line.partition(": ")[0] for line in last_lines} <= CLASSES
