"""``gaam runs`` lists everything in a folder of runs: finished, damaged, unfinished."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.store.files import sealed_text
from gaam_decoder import load_runs
from tests.conftest import GOLDEN, Outcome

Gaam = Callable[..., Outcome]
GAAM_RUN = "gaam-linear-1f50a817-s0-1"
NONE_RUN = "none-linear-f61c8b4f-s0-1"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and its runs, in the current folder."""
    folder = tmp_path / "study"
    shutil.copytree(GOLDEN / "v0.1.0", folder)
    monkeypatch.chdir(folder)
    return folder


def test_runs_without_arguments_lists_the_folder_of_that_name(
    gaam: Gaam, study: Path
) -> None:
    outcome = gaam("runs")
    assert (outcome.code, outcome.err) == (0, "")
    for part in (GAAM_RUN, NONE_RUN, "gaam + linear", "2 finished"):
        assert part in outcome.out


def test_a_run_in_several_folders_is_listed_once(gaam: Gaam, study: Path) -> None:
    listed = gaam("runs").out
    assert gaam("runs", study / "runs", "runs").out == listed
    assert gaam("runs", f"runs/{NONE_RUN}", "runs").out == listed


@pytest.mark.usefixtures("study")
def test_an_entry_has_the_accuracy_and_the_size_of_its_run(gaam: Gaam) -> None:
    entries = json.loads(gaam("runs", "--json").out)["runs"]
    for entry, run in zip(entries, load_runs("runs"), strict=True):
        assert entry["name"] == run.path.name
        assert entry["accuracy"] == run.accuracy.mean()
        assert entry["bytes"] == sum(file.stat().st_size for file in run.path.iterdir())


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize(
    "filters",
    [
        pytest.param(("--attn", "none"), id="one filter"),
        pytest.param(("--where", "cache=cache", "--attn", "none"), id="two filters"),
    ],
)
def test_filters_leave_out_runs(filters: tuple[str, ...], gaam: Gaam) -> None:
    listing = json.loads(gaam("runs", "--json", *filters).out)
    assert [run["name"] for run in listing["runs"]] == [NONE_RUN]
    assert listing["selection"]["left_out"] == {"--attn": 1}


def test_runs_of_several_encoders_name_theirs(gaam: Gaam, study: Path) -> None:
    assert "through" not in gaam("runs").out
    record = study / "runs" / NONE_RUN / "run.json"
    values = json.loads(record.read_text())
    del values["sha256_of_this"]
    values["cache"]["encoder"] = "another"
    record.write_text(sealed_text(values))
    lines = gaam("runs").out.splitlines()
    encoders = [line.split(" through ")[1] for line in lines if "through" in line]
    assert [name.split()[0] for name in encoders] == ["encoder", "another"]


def states_of_runs(outcome: Outcome) -> list[Any]:
    """The state of every run in a listing that names damage."""
    assert outcome.code == 3
    return [run["state"] for run in json.loads(outcome.out)["runs"]]


def test_filters_never_leave_out_damage(gaam: Gaam, study: Path) -> None:
    (study / "runs" / GAAM_RUN / "run.json").write_text("{")
    (study / "runs" / "mha-linear-00000000-s0-1").mkdir()
    expected = ["damaged", "damaged", "finished"]
    assert states_of_runs(gaam("runs", "--json")) == expected
    assert states_of_runs(gaam("runs", "--json", "--attn", "none")) == expected
    assert "DAMAGED" in gaam("runs").out
