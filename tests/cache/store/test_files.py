"""Files and folders appear whole or not at all, and where none can be is said beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaam_cache.errors import ConfigError
from gaam_cache.store.files import check_writable, whole_folder, write_file


def test_an_exclusive_file_is_whole_and_that_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert write_file(folder / "a", b"the first", exclusive=True)
    assert not write_file(folder / "a", b"the second", exclusive=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {"a": b"the first"}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("empty", "full", "source/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    for name, to in {"to-file": "file", "to-full": "full", "link": "source"}.items():
        (tmp_path / name).symlink_to(to)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_in_the_way_is_said_beforehand(places: Path) -> None:
    for file, good, bad in (
        (True, ["file", "new", "a/b/new", "to-file"], ["empty", "to-full", "pipe", "file/x"]),
        (False, ["empty", "full", "a/b/new", "to-full/new"], ["file", "to-file", "file/x"]),
    ):
        for name in good:
            check_writable(Path(name), option="--out", file=file)
        for name in bad:
            with pytest.raises(ConfigError, match="--out"):
                check_writable(places / name, option="--out", file=file)


def test_a_folder_lies_neither_in_nor_around_what_is_exported(places: Path) -> None:
    for name in ("source", "link/new", "."):
        with (
            pytest.raises(ConfigError, match=f"where: +{places / 'source'}$"),
            whole_folder(Path("source"), Path(name), lambda _: True, overwrite=True),
        ):
            pytest.fail(name)
    for name in ("new", "empty"):
        with whole_folder(Path("link"), Path(name), lambda _: False) as folder:
            (folder / "f").write_text("x")
        assert [path.name for path in Path(name).iterdir()] == ["f"]
