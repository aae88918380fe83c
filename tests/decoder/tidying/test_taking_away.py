"""Moved, renamed, removed: at whatever operation it ends, nothing is lost and nothing is half."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError, StorageError
from gaam_decoder import tidying
from gaam_decoder.runs.run_folders import run_folders
from gaam_decoder.tidying import Filters
from tests.conftest import GOLDEN
from tests.decoder.tidying.conftest import Failing, Struck, content
from tests.hostile_strings import HOSTILE, harmful

NONE = Filters()
ACTS: dict[str, Callable[[Path, Path], object]] = {
    "rename": lambda run, to: tidying.rename(run, "other"),
    "move": lambda run, to: tidying.moving([run], NONE, run.parent, to).carry_out(),
    "remove": lambda run, to: tidying.removal([run], NONE, run.parent).carry_out(),
}


def whole(folder: Path) -> set[str]:
    """Runs below a folder, all of which must be whole."""
    return {name.partition("/")[0] for name in content(folder)}


@pytest.mark.parametrize("kill", [False, True], ids=["fails", "kill"])
@pytest.mark.parametrize("apart", [False, True], ids=["same disk", "other disk"])
@pytest.mark.parametrize("act", ACTS)
def test_at_any_operation_nothing_is_lost_and_nothing_half(
    act: str, apart: bool, kill: bool, tmp_path: Path
) -> None:
    before = content(GOLDEN / "v0.1.0" / "runs")
    for nth in range(1, 200):
        root = tmp_path / f"{nth}"
        runs, to = root / "runs", root / "to"
        shutil.copytree(GOLDEN / "v0.1.0" / "runs", runs)
        run, other = sorted(runs.iterdir())
        with pytest.MonkeyPatch.context() as monkeypatch:
            failing = Failing(monkeypatch, kill=kill, apart=to if apart else None)
            failing.left = nth
            ended: BaseException | None = None
            try:
                ACTS[act](run, to)
            except (GaamError, Struck) as stop:
                ended = stop
        there = {**content(to), **content(runs)}  # every run that is there is whole
        assert whole(runs) >= {other.name}
        mine = {name.partition("/")[2]: b for name, b in there.items() if other.name not in name}
        expected = {name.partition("/")[2]: b for name, b in before.items() if run.name in name}
        if act == "remove":
            assert mine in ({}, expected), nth
        else:
            assert mine == expected, (nth, ended)
        if failing.left > 0:  # all was done before the Nth
            assert ended is None
            assert len(run_folders(runs)) == 2 - (act != "rename")
            assert not [
                path for path in (*runs.iterdir(), *root.glob("to/*")) if path.name[0] == "."
            ]
            assert nth > (3 if act == "rename" else 6)
            break
        # the same again ends it
        if run.exists():
            ACTS[act](run, to)
        assert whole(runs) == ({other.name} if act != "rename" else whole(runs))
        assert {**content(to), **content(runs)}.keys() >= {f"{other.name}/run.json"}
    else:
        pytest.fail("the operations never ended")


def test_a_run_that_was_renamed_is_the_same_run(study: Path) -> None:
    run = sorted((study / "runs").iterdir())[0]
    renamed = tidying.rename(run, "best")
    assert renamed.name == "best-1f50a817-s0-1"
    assert tidying.rename(renamed, "best") == renamed
    assert tidying.rename(renamed, "best-1f50a817-s0-1") == renamed
    # one that lost its ending by hand has it again
    by_hand = renamed.rename(renamed.with_name("mine"))
    assert tidying.rename(by_hand, "mine").name == "mine-1f50a817-s0-1"


def test_a_name_that_no_run_can_have_is_one_message(study: Path) -> None:
    run = sorted((study / "runs").iterdir())[0]
    before = content(study / "runs")
    odd = ["a/b", "..", ".", ".hidden", "-x", "", "x" * 81, "ä" * 81, "a b", "x-deadbeef-s0"]
    odd += ["x-deadbeef-s", "none-linear-f61c8b4f-s0-1", "x-f61c8b4f-s0-1-"]
    for name in [*odd, *HOSTILE.values()]:
        said: str | None = None
        try:
            renamed = tidying.rename(run, name)
        except ConfigError as refused:
            said = str(refused)
        if said is None:
            said = renamed.name
            assert renamed.parent == run.parent
            assert renamed.name.endswith("-1f50a817-s0-1")
            renamed.rename(run)
        assert not harmful(said), name
        assert content(study / "runs") == before, name
    other = sorted((study / "runs").iterdir())[1]
    (study / "runs" / "taken-1f50a817-s0-1").mkdir()
    with pytest.raises(ConfigError, match="already"):
        tidying.rename(run, "taken")
    (study / "runs" / "link-1f50a817-s0-1").symlink_to(other)
    with pytest.raises(ConfigError, match="already"):
        tidying.rename(run, "link")


def test_what_must_stay_stays(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = study / "runs"
    run = sorted(runs.iterdir())[0]
    (study / "link").symlink_to(run)
    before = content(runs)

    def refused(word: Path | str, kind: type[GaamError], text: str) -> None:
        for act in ACTS.values():
            with pytest.raises(kind, match=text) as stop:
                act(Path(word), study / "to")
            assert not harmful(str(stop.value))
        assert content(runs) == before
        assert not (study / "to").exists()

    refused(study / "link", ConfigError, "is a link")
    refused(runs, ConfigError, "a folder of 2 runs")
    refused(study / "cache", NotFoundError, "no run")
    refused(runs / f"{run.name}x", NotFoundError, "did you mean")
    refused(runs / ".hidden", ConfigError, "no finished run")
    for name in [name for name in HOSTILE.values() if name]:
        with pytest.raises(ConfigError) as stop:
            tidying.removal([name], NONE, runs)
        assert not harmful(str(stop.value)), name
    monkeypatch.chdir(run)
    refused(run, ConfigError, "current folder")
    refused(".", ConfigError, "current folder")
    monkeypatch.chdir(study)
    (run / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"other things lie in it: notes\.txt"):
        tidying.removal([run], NONE, runs)
    (run / "notes.txt").unlink()
    with pytest.raises(ConfigError, match="neither"):
        tidying.removal([], NONE, runs)


def test_a_target_where_runs_cannot_lie_is_refused(study: Path) -> None:
    runs = study / "runs"
    run, other = sorted(runs.iterdir())
    (study / "file").write_text("x")
    for to in (runs, study / "cache", other, run / "below", study / "file"):
        with pytest.raises((ConfigError, StorageError)):
            tidying.moving([run], NONE, runs, to)
    # another run of that name is not replaced; the same one is what a move that was cut off left
    twin = study / "twin"
    shutil.copytree(runs, twin)
    tidying.moving([run], NONE, runs, twin).carry_out()
    assert not run.exists()
    assert whole(twin) == {run.name, other.name}
    (twin / other.name / "log.jsonl").write_text("")
    with pytest.raises(ConfigError, match="already"):
        tidying.moving([other], NONE, runs, twin)
    assert whole(runs) == {other.name}


def test_filters_choose_what_goes_and_damaged_runs_stay(study: Path) -> None:
    runs = study / "runs"
    run, other = sorted(runs.iterdir())
    damaged = runs / "gaam-linear-aaaaaaaa-s0-1"
    damaged.mkdir()
    plan = tidying.removal([], Filters.of(attn="gaam"), runs)
    assert plan.folders == (run,)
    assert "1 folder, 11.3 kB" in plan.in_words()
    assert damaged.name in plan.in_words()
    plan.carry_out()
    assert sorted(runs.iterdir()) == [damaged, other]
    with pytest.raises(NotFoundError, match="no run is meant"):
        tidying.removal([], Filters.of(attn="gaam"), runs)
    tidying.removal([damaged], NONE, runs).carry_out()  # by its name
    assert list(runs.iterdir()) == [other]
    (other / "log.jsonl").unlink()
    with pytest.raises(CacheError):
        tidying.moving([other], NONE, runs, study / "to")


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_in_a_folder_that_is_read_only_nothing_happens(study: Path) -> None:
    runs = study / "runs"
    run = sorted(runs.iterdir())[0]
    before = content(runs)
    runs.chmod(0o555)
    try:
        for act in ACTS.values():
            with pytest.raises(StorageError):
                act(run, study / "to")
        assert content(runs) == before
    finally:
        runs.chmod(0o755)


@pytest.mark.parametrize("named", ["by name", "by path"])
def test_a_move_of_several_that_was_cut_off_is_ended_by_the_same_words(
    study: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, to = study / "runs", study / "to"
    names = sorted(path.name for path in runs.iterdir())
    words = [str(runs / name) if named == "by path" else name for name in names]
    monkeypatch.chdir(study)
    before = whole(runs)
    none = tidying.Filters.of()
    for first in names:  # the first of any order is there, and then all are
        if (runs / first).exists():
            tidying.moving([first], none, runs, to).carry_out()
        move = tidying.moving(words, none, runs, to)
        assert first in move.there
        assert len(move.there) + len(move.folders) == len(names)
        assert all(name in move.in_words() for name in names)
    move.carry_out()
    assert whole(to) == before
    with pytest.raises(GaamError, match="no such run"):
        tidying.moving([*words, "laplace-linear-01234567-s0-1"], none, runs, to)
