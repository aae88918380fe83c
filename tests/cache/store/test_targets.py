"""Where nothing can be written, that is said before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.errors import ConfigError
from gaam_cache.store import files as targets
from gaam_cache.store.files import check_file, check_folder

CHECKS: dict[str, Callable[[Path], None]] = {
    "file": lambda path: check_file(path, option="--out"),
    "folder": lambda path: check_folder(path, option="--out"),
}
GOOD = {
    "file": ["file", "new", "a/b/new", "link-to-file", "link-to-nothing", "empty/new"],
    "folder": ["empty", "full", "new", "a/b/new", "link-to-folder", "link-to-folder/new", "."],
}
BAD = {
    "file": {"empty": "a folder", "full": "a folder", "link-to-folder": "a folder", "pipe": "pipe"},
    "folder": {"file": "a file", "link-to-file": "a file", "pipe": "pipe",
               "link-to-nothing": "leads nowhere", "link-to-nothing/new": "leads nowhere",
               "link-to-nothing/a/b": "leads nowhere"},
}  # fmt: skip
BOTH = {
    "file/new": "a file",
    "file/a/b": "a file",
    "link-to-file/new": "a file",
    "pipe/new": "pipe",
    "full/x/y/z": "a file",
    "n" * 300: "name too long",
    "n" * 300 + "/new": "name too long",
    "new/" + "n" * 300: "name too long",
    "round": "leads nowhere",
}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name, to in (("file", "file"), ("folder", "full"), ("nothing", "no/such")):
        (tmp_path / f"link-to-{name}").symlink_to(to)
    (tmp_path / "round").symlink_to("round")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder: Path) -> dict[str, bool]:
    return {str(path): path.is_symlink() for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", CHECKS)
def test_what_is_in_the_way_is_named(kind: str, places: Path) -> None:
    before = tree(places)
    for name, found in (BAD[kind] | BOTH).items():
        for path in (Path(name), places / name):
            with pytest.raises(ConfigError, match="nothing can be written") as refused:
                CHECKS[kind](path)
            details = refused.value.details
            assert found in details["found"].lower(), name
            assert kind in details["expected"]
            assert details["where"].startswith(str(places))
            assert "--out" in details["to do"]
            assert "is kept" not in str(refused.value)
    assert tree(places) == before


@pytest.mark.parametrize("kind", CHECKS)
def test_what_can_be_written_can_be(kind: str, places: Path) -> None:
    for name in GOOD[kind]:
        CHECKS[kind](Path(name))
        CHECKS[kind](places / name)
    check_file(Path("pipe"), option="--out", special=True)
    check_file(Path("/dev/null"), option="--out", special=True)


@pytest.mark.parametrize("kind", CHECKS)
def test_folders_that_may_not_be_written_to(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says, which never says so to root."""
    monkeypatch.setattr(targets.os, "access", lambda path, mode: Path(path).name != "empty")
    for name in ("empty/new", "empty/a/b") + (("empty",) if kind == "folder" else ()):
        with pytest.raises(ConfigError, match="nothing can be written") as refused:
            CHECKS[kind](Path(name))
        assert "Permission denied" in refused.value.details["found"]
    monkeypatch.setattr(targets.os, "access", lambda path, mode: Path(path).name != "full")
    if kind == "folder":  # all that is wanted may be there
        check_folder(Path("full"), option="--out")
    with pytest.raises(ConfigError):
        CHECKS[kind](Path("full/new"))
