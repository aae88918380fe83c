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
import torch

from gaam_cache.cache import open_cache
from gaam_cache.engines.sharing.ranks import find_rank
from gaam_decoder.studying import running
from gaam_decoder.studying.place import environment
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


def test_machine_and_every_cache_are_recorded(here: Path) -> None:
    recorded = json.loads((here / "tiny/results.json").read_text())
    (machine,) = recorded["machines"]
    assert machine["cpu"]
    assert (machine["cpus"], machine["device"]) == (os.cpu_count(), "cpu")
    assert machine["torch"] == torch.__version__
    caches = {
        path.name: open_cache(path).fingerprint for path in (here / "studies/caches").iterdir()
    }
    assert recorded["caches"] == caches


def test_a_page_has_the_checklist_once(here: Path) -> None:
    page = (here / "tiny/README.md").read_text()
    assert page.count("Checklist of experiments") == 1
    of_all = [line for line in page.splitlines() if line.startswith("| licences |")]
    assert len(of_all) == len(set(of_all)) == 3
    claims = [line for line in page.splitlines() if line.startswith("| claims |")]
    assert any("Both, table 1" in line for line in claims)
    assert any("Both, table 2" in line for line in claims)
    assert all("One" in line or "Both" in line for line in claims)


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
    lambda number: {"GAAM_RANK": f"{number}/2"},
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
        rank = find_rank(environment(ranked=ranked).get("GAAM_RANK"), environment(ranked=ranked))
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


ENDLESS = RECIPE.replace("epochs = 2", "epochs = 99999")


def at_once(here: Path) -> bool:
    return True


def while_it_trains(here: Path) -> bool:
    return any((here / RUNS).glob(".leases/*"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no process of the other")
@pytest.mark.parametrize(
    ("step", "when"), [("plant", at_once), ("train", at_once), ("train", while_it_trains)]
)
def test_a_step_ends_with_the_study_that_was_killed(
    step: str, when: Callable[[Path], bool], tmp_path: Path
) -> None:
    written(tmp_path, ENDLESS)
    with subprocess.Popen(command(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(f"$ gaam {step} "):
            assert process.poll() is None
        while not when(tmp_path):
            assert process.poll() is None
        process.kill()
        process.communicate(timeout=300)  # its step writes there until it has ended too
    assert not list((tmp_path / RUNS).glob("*/run.json"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no process of the other")
def test_a_step_whose_study_was_killed_before_it_began_does_nothing() -> None:
    *python, code = running.with_us()
    of_another = code.replace(str(os.getpid()), "1")
    told = subprocess.run(
        [*python, of_another, "--version"], capture_output=True, check=False, text=True
    )
    assert (told.returncode, told.stdout) == (130, "")


def test_it_runs_this_very_code() -> None:
    told = subprocess.run(
        [*running.GAAM, "--version"], cwd=os.sep, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("gaam ")
    assert running.GAAM[0] == sys.executable
