"""What a dry run says of what is known and of what is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.decoder.studying.tiny_study import (
    RUNS,
    Gaam,
)


def left_out(here: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(here / "studies" / name)


@pytest.mark.parametrize(
    ("missing", "unknown", "said"),
    [
        (("caches", "tiny"), 5, "# how long all of it takes is not known: 5 of 5 commands"),
        (("caches/again",), 2, "# how long all of it takes is not known: 2 of 5 commands"),
        (("tiny",), 1, "and what is not known: 1 of 5 commands have no estimate"),
        ((), 0, "# nothing is left to be made"),
    ],
)
def test_a_dry_run_says_what_it_does_not_know(
    missing: tuple[str, ...], unknown: int, said: str, here: Path, gaam: Gaam
) -> None:
    left_out(here, *missing)
    told = gaam("study", "tiny", "--dry-run")
    assert told.out.splitlines()[-1].endswith(said) or said in told.out.splitlines()[-1]
    assert told.out.count("no estimate") == unknown + (unknown > 0)
    values = json.loads(gaam("study", "tiny", "--dry-run", "--json").out)
    assert (values["seconds"] is None) == (unknown == len(values["commands"]))
    assert values["unknown"] == unknown


def test_an_ablation_has_an_estimate_when_its_run_is_there(here: Path, gaam: Gaam) -> None:
    for run in (here / RUNS).iterdir():
        if run.is_dir() and json.loads((run / "run.json").read_text())["recipe"]["layers"]:
            shutil.rmtree(run)
    told = json.loads(gaam("study", "tiny", "--dry-run", "--json").out)
    (ablation,) = [one for one in told["commands"] if one["command"].startswith("gaam ablate")]
    assert ablation["cost"] == "18 trainings"
    assert ablation["seconds"] > 0


def test_a_dry_run_writes_nothing(here: Path, gaam: Gaam) -> None:
    shutil.rmtree(here / "studies")
    told = gaam("study", "tiny", "--dry-run", "--json")
    assert told.code == 0
    commands = [one["command"].split()[1] for one in json.loads(told.out)["commands"]]
    assert commands == ["plant", "plant", "train", "train", "ablate"]
    assert not (here / "studies").exists()
