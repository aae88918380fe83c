"""``gaam runs`` lists, renames, moves and removes; what goes is asked for."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.terminal import asking
from tests.cli.commands import COMMANDS
from tests.conftest import GOLDEN, Outcome
from tests.hostile_strings import HOSTILE, harmful

Gaam = Callable[..., Outcome]
FIRST, SECOND = "gaam-linear-1f50a817-s0-1", "none-linear-f61c8b4f-s0-1"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study in the current folder."""
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_runs_alone_lists_and_a_folder_may_follow(gaam: Gaam, here: Path) -> None:
    said = gaam("runs")
    assert said.code == 0, said.err
    assert said.err == ""
    for part in (FIRST, SECOND, "gaam + linear", "2 finished"):
        assert part in said.out
    for words in (["list"], ["runs"], ["list", "runs"], ["./runs"], [here / "runs", "runs"]):
        assert gaam("runs", *words).out == said.out
    found = json.loads(gaam("runs", "--json").out)
    assert [run["name"] for run in found["runs"]] == [FIRST, SECOND]
    found = json.loads(gaam("runs", "--json", "--attn", "none", "--cache", "cache").out)
    assert [run["name"] for run in found["runs"]] == [SECOND]
    assert found["selection"]["left_out"] == {"--attn": 1}
    (here / "runs" / SECOND / "run.json").write_text("{")
    assert "DAMAGED" in gaam("runs").out
    assert gaam("runs").code == 3
    wrong = gaam("runs", "remov", FIRST)
    assert wrong.code == 2
    assert "did you mean 'remove'" in wrong.err
    # a folder that has the name of a command is written with its place
    shutil.copytree(GOLDEN / "v0.1.0" / "runs", here / "remove")
    assert gaam("runs", "./remove").code == 0


def test_nothing_goes_where_nobody_was_asked(gaam: Gaam, here: Path) -> None:
    for command in (
        ["remove", FIRST],
        ["remove", "--attn", "gaam"],
        ["move", FIRST, "to"],
        ["move", "--attn", "gaam", "to"],
    ):
        said = gaam("runs", *command)
        assert said.code == 2, said
        assert "--yes" in said.err
        assert "1 folder, 11.3 kB" in said.err or "1 run, 11.3 kB" in said.err
    assert names(here / "runs") == [FIRST, SECOND]
    assert names(here) == ["cache", "report.json", "runs"]
    assert gaam("runs", "remove", "--yes").code == 2
    assert gaam("runs", "remove", "runs", "--yes").code == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("y\n", 0), ("no\n", 1), ("", 1)])
def test_on_a_terminal_what_goes_is_listed_and_asked_for(
    answer: str, code: int, gaam: Gaam, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()

    def ask(what: str, *, yes: bool) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal(answer))
            patch.setattr(sys, "stderr", shown)
            return asking.consent(what, yes=yes)

    monkeypatch.setattr("cli.consent", ask)
    said = gaam("runs", "remove", FIRST)
    assert said.code == code, said
    assert "to be removed: 1 folder, 11.3 kB" in shown.getvalue()
    assert str(here / "runs" / FIRST) in shown.getvalue()
    assert names(here / "runs") == ([SECOND] if code == 0 else [FIRST, SECOND])


def test_what_is_renamed_moved_and_removed_is_found_by_the_other_commands(
    gaam: Gaam, here: Path
) -> None:
    before = json.loads(gaam("report", "--json").out)["rows"]
    renamed = gaam("runs", "rename", FIRST, "best")
    assert renamed.code == 0, renamed.err
    assert names(here / "runs") == ["best-1f50a817-s0-1", SECOND]
    options = ["--attn", "gaam", "--seeds", 2, "--epochs", 8, "--lr", 0.01, "--device", "cpu"]
    assert gaam("train", *options).code == 0
    assert len(names(here / "runs")) == 2, "it was trained again"
    moved = gaam("runs", "move", "best-1f50a817-s0-1", "archive/2026", "--yes", "--json")
    assert json.loads(moved.out)["bytes"] == 11325
    rows = json.loads(gaam("report", "archive/2026", "runs", "runs", "--json").out)["rows"]
    assert [row["accuracy"] for row in rows] == [row["accuracy"] for row in before]
    assert gaam("verify", "archive/2026").code == 0
    assert gaam("runs", "remove", "--since", "2020-01-01", "--yes").code == 0
    assert names(here / "runs") == []
    assert gaam("runs").code == 2
    near = gaam("report", "archiv/2026")
    assert near.code == 2
    near = gaam("ablate", "archive/2026/bst-1f50a817-s0-1")
    assert "did you mean 'archive/2026/best-1f50a817-s0-1'" in near.err


def test_hostile_words_are_one_message(gaam: Gaam, here: Path) -> None:
    commands = (["remove", "--yes", "--"], ["move", "--yes", "--"], ["rename", "--", FIRST])
    for name in list(HOSTILE.values())[::5]:
        if "\0" in name or not name or any("\ud800" <= c <= "\udfff" for c in name):
            continue
        for command in commands:
            given = [*command, name, *(["to"] if command[0] == "move" else [])]
            said = gaam("runs", *given)
            assert not harmful(said.out + said.err), (name, command)
            assert "Traceback" not in said.err
            if command[0] == "rename" and said.code == 0:
                (there,) = (path for path in (here / "runs").iterdir() if path.name != SECOND)
                there.rename(here / "runs" / FIRST)
            else:
                assert said.code in (1, 2), (name, command, said)
    assert names(here / "runs") == [FIRST, SECOND]


WAYS = [
    ["remove", "--attn", "gaam"],
    ["remove", FIRST],
    ["remove", "--unfinished"],
    ["remove", "--unfinished", "x"],
    ["remove", "--since", "1d"],
    ["move", FIRST, "to"],
    ["move", "--head", "linear", "to"],
    ["rename", FIRST, "other"],
]
"""Whatever is done to the runs of --runs."""


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
@pytest.mark.parametrize("place", ["no-such", "no/such/folder", "file", "file/x", "nowhere"])
def test_a_folder_of_runs_that_is_none_is_said_so(
    words: list[str], place: str, gaam: Gaam, here: Path
) -> None:
    (here / "file").write_text("")
    (here / "nowhere").symlink_to("no/such")
    for more in ([], ["--yes"], ["--yes", "--json"]):
        given = [*words, "--runs", place, *(more if words[0] != "rename" else [])]
        said = gaam("runs", *given)
        assert (said.code, said.out) == (2, ""), said
        assert "0 of 0" not in said.err
        assert "no folder" in said.err or "no such folder" in said.err
        for part in ("expected:", "found:", "where:", "to do:"):
            assert part in said.err
    said = gaam("runs", "list", place)
    assert (said.code, said.out) == (2, "")
    assert names(here / "runs") == [FIRST, SECOND]


def test_every_command_of_runs_is_tried_so() -> None:
    tried = {words[0] for words in WAYS} | {"list"}
    assert {f"runs {name}" for name in tried} == {c for c in COMMANDS if c.startswith("runs ")}


def test_a_folder_without_runs_has_none(gaam: Gaam, here: Path) -> None:
    (here / "empty").mkdir()
    said = gaam("runs", "remove", "--attn", "gaam", "--runs", "empty", "--yes")
    assert (said.code, said.out) == (2, "")
    assert "no runs in 'empty'" in said.err


def test_a_report_in_csv_of_some_runs_says_so_on_stderr_alone(gaam: Gaam, here: Path) -> None:
    for format in ("csv", "csv-seeds"):
        whole = gaam("report", "--format", format)
        assert (whole.code, whole.err) == (0, "")
        for out in ([], ["--out", "table.csv"]):
            some = gaam("report", "--format", format, "--attn", "gaam", *out)
            assert some.code == 0
            assert some.err.startswith("note: this report is of 1 of 2 runs")
            assert "note" not in some.out
            text = some.out or (here / "table.csv").read_text()
            header, *lines = text.splitlines()
            assert "left_out" in header.split(",")
            assert lines
            assert all("1 by --attn" in line for line in lines)
