"""A study from its first command to its check, cut off and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_decoder.studying import running
from tests.conftest import Outcome
from tests.decoder.studying.tiny_study import ABLATION, RECIPE, written

RECORDED = ("results.json", "seeds.csv")
"""The page has seconds."""
Gaam = Callable[..., Outcome]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the study was run and recorded."""
    here = tmp_path_factory.mktemp("study")
    written(here)
    assert study(here, "--record").returncode == 0
    return here


@pytest.fixture
def here(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(done, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def command(*options: str) -> list[str]:
    return [*running.GAAM, "study", "tiny", "-q", *options]


def study(here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), cwd=here, capture_output=True, text=True, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_run_again_makes_the_same_and_trains_nothing(here: Path) -> None:
    (here / "cli.py").write_text("raise SystemExit('the cli.py of the folder')")
    before = contents(here / "studies")
    again = study(here, "--check", "--json")
    assert again.returncode == 0, again.stderr
    assert contents(here / "studies") == before
    told = json.loads(again.stdout)
    assert told["check"]["differences"] == []
    assert told["check"]["rows"] > 6
    assert all(f"$ gaam {name} " in again.stderr for name in ("plant", "train", "ablate"))
    recorded = contents(here / "tiny")
    made = {name: content for name, content in before.items() if name.startswith("tiny/")}
    assert {f"tiny/{name}": recorded[name] for name in recorded if name != "study.toml"} == {
        name: content for name, content in made.items() if "/runs/" not in name
    }
    assert str(here.parent).encode() not in b"".join(recorded.values())


def test_a_dry_run_writes_nothing(here: Path, gaam: Gaam) -> None:
    shutil.rmtree(here / "studies")
    told = gaam("study", "tiny", "--dry-run", "--json")
    assert told.code == 0
    commands = [one["command"].split()[1] for one in json.loads(told.out)["commands"]]
    assert commands == ["plant", "plant", "train", "train", "ablate"]
    assert not (here / "studies").exists()


@pytest.mark.parametrize(("old", "new"), [('"laplace"', '"gaussian"'), ("rows = 90", "rows = 93")])
def test_a_cache_of_other_options_is_refused(here: Path, gaam: Gaam, old: str, new: str) -> None:
    """Its study was changed: the numbers of the old one are not those of the new."""
    written(here, RECIPE.replace(f"{old}", new, 1))
    assert old in RECIPE
    refused = gaam("study", "tiny", "--check")
    assert refused.code == 2
    assert "exit code 2 of: gaam plant studies/caches/small" in refused.err


def test_a_check_tells_what_has_changed(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    path = here / "tiny" / "results.json"
    whole = path.read_text()
    results = json.loads(whole)
    results["reports"]["both"][0]["rows"][0]["accuracy"]["mean"] += 0.0031
    results["reports"]["one"][0]["rows"][0]["seeds"][0] += 50
    path.write_text(json.dumps(results))
    failed = gaam("study", "tiny", "--check")
    assert failed.code == 1, failed.err
    assert failed.out.count("differs: ") == 2
    path.write_text(whole.replace('"cache": "', '"cache": "0'))
    assert gaam("study", "tiny", "--check").code == 3
    for junk in ("{", "{}", "[]"):
        path.write_text(junk)
        assert gaam("study", "tiny", "--check").code == 3
    path.unlink()
    assert gaam("study", "tiny", "--check").code == 2


def trained_by_hand(gaam: Gaam) -> str:
    asked = ["--attn", "layer-mean", "--seeds", "2,3", "--epochs", "1", "--no-probe", "-q"]
    assert gaam("train", "--cache", CACHE, "--runs", RUNS, *asked).code == 0
    return RECIPE


CACHE, RUNS = "studies/caches/small", "studies/tiny/runs"
CHANGED: dict[str, tuple[Callable[[Gaam], str], list[str]]] = {
    "another mechanism": (lambda _: RECIPE.replace('"gaam:heads=1", ', ""), ["gaam_heads_1-"]),
    "fewer seeds": (lambda _: RECIPE.replace("2-7", "2-6", 1), 2 * ["-s2-7 (seeds 7)"]),
    "no ablation": (lambda _: RECIPE.replace(ABLATION, ""), 3 * ["laplace_heads_1-"]),
    "by hand": (trained_by_hand, ["layer-mean-linear-"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_runs_that_nobody_asked_for_are_named_and_nothing_is_reported(
    here: Path, gaam: Gaam, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    changed, expected = CHANGED[change]
    recipe = changed(gaam)
    written(here, recipe)
    before = contents(here)
    for option in ("--check", "--record", "--json"):
        refused = gaam("study", "tiny", option)
        assert refused.code == 2
        assert "does not ask for" in refused.err
        assert contents(here) == before
    (line,) = [line for line in refused.err.splitlines() if line.startswith("  found:")]
    named = line.removeprefix("  found:").strip().split("; ")
    assert len(named) == len(expected)
    for name, part in zip(named, expected, strict=True):
        assert part in name
        shutil.move(here / RUNS / name.split(" ")[0], here / name.split(" ")[0])
    if change != "fewer seeds":  # whose others are to be trained
        assert gaam("study", "tiny").code == 0


def test_runs_that_are_missing_are_named_and_nothing_is_reported(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    runs = sorted((here / "studies/tiny/runs").iterdir())
    for run in runs:
        run.rename(here / run.name)
        refused = gaam("study", "tiny")
        assert refused.code == 2, run.name
        assert "are missing" in refused.err
        (here / run.name).rename(run)


def test_variables_of_the_shell_do_not_change_a_recipe(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"EPOCHS": "3", "LR": "1", "SEEDS": "3", "POOL": "max"}.items():
        monkeypatch.setenv(f"GAAM_{name}", value)
    again = study(here, "--check")
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_folders_of_any_name_leave_numbers_alone(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    before = (here / "studies/tiny/seeds.csv").read_bytes()
    for dataset in (".", "..", "0", "/", "a", ",", str(here)):
        assert gaam("study", "tiny", "--dataset", dataset).code == 0
        assert (here / "studies/tiny/seeds.csv").read_bytes() == before, dataset


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_to_the_same(done: Path, tmp_path: Path) -> None:
    written(tmp_path)
    for steps in range(1, 6):
        with subprocess.Popen(
            command(), cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            seen = 0
            while seen < steps and (line := process.stderr.readline()):
                seen += line.startswith("$ gaam")
            assert seen == steps
            process.send_signal(signal.SIGTERM if steps % 2 else signal.SIGKILL)
            process.stderr.read()  # until its command has ended too
        assert process.returncode in (130, -signal.SIGKILL)
    assert study(tmp_path).returncode == 0
    for name in RECORDED:
        made = tmp_path / "studies/tiny" / name
        assert made.read_bytes() == (done / "studies/tiny" / name).read_bytes()


def test_it_runs_this_very_code() -> None:
    told = subprocess.run(
        [*running.GAAM, "--version"], cwd=os.sep, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("gaam ")
    assert running.GAAM[0] == sys.executable
