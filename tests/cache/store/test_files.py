"""Files and folders appear whole or not at all; a bad place is refused beforehand."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaam_cache.common.errors import ConfigError, StorageError
from gaam_cache.store.files import check_writable, replace_folder, write_file
from tests.conftest import no_links

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "answer",
    [None, "EPERM", "EACCES", "ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EMLINK"],
)
def test_an_exclusive_file_is_whole_and_that_of_the_first(
    answer: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a file system answers to a hard link; None: it is made."""
    if answer is not None:
        monkeypatch.setattr(os, "link", no_links(getattr(errno, answer)))
    file = tmp_path / "new" / "a"
    assert write_file(file, b"the first", exclusive=True)
    assert not write_file(file, b"the second", exclusive=True)
    link = file.with_name("b")
    link.symlink_to("/mnt/not-mounted")
    assert not write_file(link, b"through a link", exclusive=True)
    names = {path.name for path in file.parent.iterdir()}
    assert {name for name in names if not name.startswith(".")} == {"a", "b"}
    assert file.read_bytes() == b"the first"
    assert link.is_symlink()


@pytest.mark.parametrize("answer", ["ENOSPC", "EIO", "EROFS"])
def test_a_disk_that_refuses_is_not_one_without_links(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = getattr(errno, answer)
    monkeypatch.setattr(os, "link", no_links(number))
    with pytest.raises(OSError, match=os.strerror(number)):
        write_file(tmp_path / "a", b"the first", exclusive=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_neither_links_nor_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links(errno.EPERM))
    monkeypatch.setattr(fcntl, "flock", no_links(errno.ENOLCK))
    with pytest.raises(StorageError) as refusal:
        write_file(tmp_path / "a", b"the first", exclusive=True)
    assert str(tmp_path) in str(refusal.value)
    assert not (tmp_path / "a").exists()


def test_without_links_one_of_several_wins_and_a_kill_blocks_nobody(
    tmp_path: Path,
) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.cache.store.writers", tmp_path],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with folders, files, links and a pipe."""
    for name in ("empty", "full", "source/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-full").symlink_to("full")
    (tmp_path / "link").symlink_to("source")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("name", ["file", "new", "a/b/new", "to-file"])
def test_a_file_may_be_written_where_nothing_or_a_file_is(name: str) -> None:
    check_writable(Path(name), option="--out", file=True)


@pytest.mark.parametrize("name", ["empty", "to-full", "pipe", "file/x"])
def test_a_file_may_not_be_written_where_something_is_in_the_way(
    name: str, places: Path
) -> None:
    with pytest.raises(ConfigError, match="--out"):
        check_writable(places / name, option="--out", file=True)


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("name", ["empty", "full", "a/b/new", "to-full/new"])
def test_a_folder_may_be_made_where_nothing_or_a_folder_is(name: str) -> None:
    check_writable(Path(name), option="--out", file=False)


@pytest.mark.parametrize("name", ["file", "to-file", "file/x"])
def test_a_folder_may_not_be_made_where_something_is_in_the_way(
    name: str, places: Path
) -> None:
    with pytest.raises(ConfigError, match="--out"):
        check_writable(places / name, option="--out", file=False)


def always(path: Path) -> bool:
    return True


def never(path: Path) -> bool:
    return False


@pytest.mark.parametrize("name", ["source", "link/new", "."])
def test_a_folder_lies_neither_in_nor_around_what_is_exported(
    name: str, places: Path
) -> None:
    with (
        pytest.raises(ConfigError, match=f"where: +{places / 'source'}$"),
        replace_folder(Path("source"), Path(name), always, overwrite=True),
    ):
        pytest.fail(name)


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("name", ["new", "empty"])
def test_a_new_or_empty_folder_is_filled(name: str) -> None:
    with replace_folder(Path("link"), Path(name), never) as folder:
        (folder / "f").write_text("x")
    assert [path.name for path in Path(name).iterdir()] == ["f"]
