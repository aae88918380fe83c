"""Files and folders appear whole or not at all, and where none can be is said beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gaam_cache.errors import ConfigError
from gaam_cache.store import files
from gaam_cache.store.files import check_file, check_folder, whole_folder, write_file


def test_what_is_written_in_pieces_is_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITE_BYTES", 64)
    for size in (0, 1, 63, 64, 65, 999):
        content = np.random.default_rng(size).bytes(size)
        write_file(tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == content


def test_an_exclusive_file_is_that_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def asked_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)  # over NFS, where the answer got lost

    for name, ask in {"once": link, "twice": asked_twice}.items():
        monkeypatch.setattr(os, "link", ask)
        folder = tmp_path / name
        assert write_file(folder / "a", b"first", exclusive=True)
        assert not write_file(folder / "a", b"second", exclusive=True)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a": b"first"}


CHECKS: dict[str, Callable[[Path], None]] = {
    "file": lambda path: check_file(path, option="--out"),
    "folder": lambda path: check_folder(path, option="--out"),
}
GOOD = {
    "file": ["file", "new", "a/b/new", "link-to-file", "link-to-nothing"],
    "folder": ["empty", "full", "new", "a/b/new", "link-to-folder", "link-to-folder/new", "."],
}
BAD = {
    "file": ["empty", "full", "link-to-folder", "pipe", "file/new", "full/x/y", "pipe/new"],
    "folder": ["file", "link-to-file", "pipe", "link-to-nothing", "link-to-nothing/a", "file/a/b"],
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name, to in (("file", "file"), ("folder", "full"), ("nothing", "no/such")):
        (tmp_path / f"link-to-{name}").symlink_to(to)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", CHECKS)
def test_what_is_in_the_way_is_said_beforehand(
    kind: str, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (Path(), places):
        for name in GOOD[kind]:
            CHECKS[kind](place / name)
        for name in BAD[kind]:
            with pytest.raises(ConfigError, match="nothing can be written"):
                CHECKS[kind](place / name)
    check_file(Path("pipe"), option="--out", special=True)
    # as the system says, which never says so to root
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path).name != "empty")
    for name in ("empty/new", "empty/a/b") + (("empty",) if kind == "folder" else ()):
        with pytest.raises(ConfigError, match="Permission denied"):
            CHECKS[kind](Path(name))
    if kind == "folder":  # all that is wanted may be there
        monkeypatch.setattr(files.os, "access", lambda path, mode: mode == os.R_OK)
        check_folder(Path("full"), option="--out")


def test_a_folder_lies_neither_in_nor_around_what_is_exported(places: Path) -> None:
    (places / "source/a").mkdir(parents=True)
    (places / "link").symlink_to("source")
    (places / "up").symlink_to(".")
    wrong = ["source", "source/new", "source/a", "link/new", "up/source/new", ".", "up", "link/.."]
    for name in wrong:
        with (
            pytest.raises(ConfigError, match="into itself"),
            whole_folder(Path("source"), Path(name), lambda _: True, overwrite=True),
        ):
            pytest.fail(name)
    for name in ("new", "sources", "source/../other", "up/third", "empty"):
        with whole_folder(Path("link"), Path(name), lambda _: False) as folder:
            (folder / "f").write_text("x")
        assert [path.name for path in Path(name).iterdir()] == ["f"]
