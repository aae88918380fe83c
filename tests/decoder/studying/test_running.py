"""A study from its first command to its check, cut off and gone on with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaam_decoder.studying import running
from gaam_decoder.studying.record import DIGEST, digest
from tests.decoder.studying.tiny_study import RECIPE, Gaam, contents, study, written


def test_run_again_makes_the_same_and_trains_nothing(
    here: Path,
) -> None:
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


@pytest.mark.parametrize(("old", "new"), [('"laplace"', '"gaussian"'), ("rows = 90", "rows = 93")])
def test_a_cache_of_other_options_is_refused(here: Path, gaam: Gaam, old: str, new: str) -> None:
    """Its study was changed: the numbers of the old one are not those of the new."""
    written(here, RECIPE.replace(f"{old}", new, 1))
    assert old in RECIPE
    refused = gaam("study", "tiny", "--check")
    assert refused.code == 2
    assert "exit code 2 of: gaam plant studies/caches/small" in refused.err


def test_every_recorded_file_is_as_the_study_wrote_it_or_refused(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page, the seeds and every picture; line ends of another system are no change."""
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    files = {path for path in (here / "tiny").iterdir() if path.name != "study.toml"}
    files.discard(here / "tiny" / "results.json")
    assert {path.suffix for path in files} == {".md", ".csv", ".svg"}
    assert set(json.loads((here / "tiny" / "results.json").read_text())["files"]) == {
        path.name for path in files
    }
    for path in sorted(files):
        was = path.read_bytes()
        for slip in (was + b" ", was[:-2], was.replace(b"0", b"1", 1), b""):
            path.write_bytes(slip)
            refused = gaam("study", "tiny", "--check")
            assert (refused.code, refused.out) == (3, ""), path
            assert "not as a study wrote it" in refused.err
            assert str(path) in refused.err
        path.unlink()
        assert "no such file" in gaam("study", "tiny", "--check").err
        path.write_bytes(was.replace(b"\n", b"\r\n"))
    assert gaam("study", "tiny", "--check").code == 0


def test_a_check_tells_what_has_changed(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    path = here / "tiny" / "results.json"
    whole = path.read_text()
    results = json.loads(whole)
    results["reports"]["both"][0]["rows"][0]["accuracy"]["mean"] += 0.0031
    results["reports"]["one"][0]["rows"][0]["seeds"][0] += 50
    path.write_text(json.dumps(results | {DIGEST: digest(results)}))
    failed = gaam("study", "tiny", "--check")
    assert failed.code == 1, failed.err
    assert failed.out.count("differs: ") == 2
    for table in results["reports"]["both"]:
        table["cache"] = f"0{table['cache']}"
    path.write_text(json.dumps(results | {DIGEST: digest(results)}))
    assert gaam("study", "tiny", "--check").code == 3
    path.write_text(whole.replace('"seeds": [', '"seeds": [9,', 1))
    assert "not as a study wrote" in gaam("study", "tiny", "--check").err
    for junk in ("{", "{}", "[]"):
        path.write_text(junk)
        assert gaam("study", "tiny", "--check").code == 3
    path.unlink()
    assert gaam("study", "tiny", "--check").code == 2


@pytest.mark.slow
def test_folders_of_any_name_leave_numbers_alone(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    before = (here / "studies/tiny/seeds.csv").read_bytes()
    for dataset in (".", "..", "0", "/", "a", ",", str(here)):
        assert gaam("study", "tiny", "--dataset", dataset).code == 0
        assert (here / "studies/tiny/seeds.csv").read_bytes() == before, dataset


def test_it_runs_this_very_code() -> None:
    told = subprocess.run(
        [*running.GAAM, "--version"], cwd=os.sep, capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("gaam ")
    assert running.GAAM[0] == sys.executable
