"""Whatever a command writes to: where that cannot be, it says so before it does anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import COMMANDS
from tests.conftest import GOLDEN, Outcome

RUN = "runs/gaam-linear-1f50a817-s0-1"
Gaam = Callable[..., Outcome]
OUTPUTS: dict[tuple[str, str], tuple[str, list[str], str]] = {
    ("extract", "out"): ("folder", ["--out", "@"], "gaam_cache.extraction.extract.prepare_job"),
    ("import", "out"): ("folder", ["x.npz", "--out", "@"], "gaam_cache.store.importing.opened"),
    ("train", "runs"): ("folder", ["--runs", "@"], "gaam_decoder.training.train.sweep"),
    ("predict", "out"): (
        "file",
        [RUN, "--cache", "cache", "--out", "@.csv"],
        "gaam_decoder.use.predict.predictor_of",
    ),
    ("plant", "out"): ("folder", ["@"], "gaam_decoder.planting.plant.make_teacher"),
    ("study", "out"): ("folder", ["layers", "--out", "@"], "gaam_decoder.studying.outcome.run"),
    ("report", "out"): ("file", ["runs", "--out", "@"], "gaam_decoder.report"),
    ("report", "figures"): ("folder", ["runs", "--figures", "@"], "gaam_decoder.report"),
    ("export", "out"): ("folder", [RUN, "@"], "gaam_decoder.export_run"),
}
"""A file or a folder, the words of a command with @ for what it writes, and where work begins."""
DRY = {
    "extract": "gaam_cache.extraction.estimate.prepare_job",
    "import": "gaam_cache.store.importing.opened",
    "train": "gaam_decoder.training.estimate.open_cache",
    "study": "gaam_decoder.studying.estimating.arguments",
}
"""Commands that say what they would do, and where that begins."""
READ = {"prompt_file", "config", "cache", "file", "files", "run", "runs", "folders"}
READ |= {"path", "from_cache"}
"""What is read or looked at, or is given another name where it is."""
IN_THE_WAY = {
    "folder": {"file": "a file", "nowhere": "a link that leads nowhere", "nowhere/x": "a link"},
    "file": {"folder": "a folder", "to-folder": "a folder"},
}
ALWAYS = {"file/x": "a file", "file/x/y": "a file", "folder/file/x": "a file"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for suffix in ("", ".csv"):
        Path(f"folder{suffix}").mkdir()
        Path(f"file{suffix}").write_text("old")
        Path(f"to-folder{suffix}").symlink_to("folder")
        Path(f"nowhere{suffix}").symlink_to("no/such")
    Path("folder/file").write_text("old")
    return tmp_path / "here"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b""
        for p in folder.rglob("*")
    }


def test_every_path_is_written_or_read() -> None:
    """A new option that takes a path is put into one of the tables."""
    for command, one in COMMANDS.items():
        ctx = one.make_context(command, [], resilient_parsing=True)
        for param in one.params:
            if "path" in param.display_type(ctx):
                known = (command, param.name) in OUTPUTS or param.name in READ
                assert known, f"gaam {command}: {param.name}"
    assert {command for command, _ in OUTPUTS} <= set(COMMANDS)


@pytest.mark.parametrize(("command", "name"), OUTPUTS)
def test_what_is_in_the_way_is_said_before_any_work(
    command: str, name: str, gaam: Gaam, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, words, begins = OUTPUTS[command, name]

    def work(*_: object, **__: object) -> Any:
        raise AssertionError("work was begun")

    monkeypatch.setattr(begins, work)
    tries = [(words, begins)]
    if command in DRY:
        monkeypatch.setattr(DRY[command], work)
        tries.append(([*words, "--dry-run"], DRY[command]))
    before = tree(here)
    for arguments, _ in tries:
        for place, found in (IN_THE_WAY[kind] | ALWAYS).items():
            for text in (place, str(here / place)):
                outcome = gaam(*command.split(), *(w.replace("@", text) for w in arguments))
                assert (outcome.code, outcome.out) == (2, ""), (place, outcome)
                assert "error: nothing can be written to" in outcome.err, outcome.err
                assert f"found:    {found}" in outcome.err
                for part in ("expected:", "where:", "to do:"):
                    assert part in outcome.err
                assert "is kept" not in outcome.err
        outcome = gaam(*command.split(), *(w.replace("@", "n" * 300) for w in arguments))
        assert (outcome.code, outcome.out) == (2, "")
        assert "at most 255 bytes" in outcome.err
        assert tree(here) == before
        if kind == "folder" and command not in ("export", "runs move"):  # a place that will do
            with pytest.raises(AssertionError, match="work was begun"):
                gaam(*command.split(), *(w.replace("@", "new/a/b") for w in arguments))


def test_folders_above_are_made(gaam: Gaam, here: Path) -> None:
    """Of what is quick to write; other tests make caches, runs and exports so."""
    for key in (("report", "out"), ("predict", "out")):
        _, words, _ = OUTPUTS[key]
        written = [word.replace("@", f"new/{key[0]}/b") for word in words]
        outcome = gaam(*key[0].split(), *written)
        assert outcome.code == 0, outcome.err
        assert any(Path(word).exists() for word in written if word.startswith("new/"))
