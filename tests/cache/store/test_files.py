"""Files and folders appear whole or not at all, and where none can be is said beforehand."""

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

ANSWERS = [None, "EPERM", "EACCES", "ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EMLINK"]
"""What file systems answer to a hard link: None is done."""


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_exclusive_file_is_whole_and_that_of_the_first(
    answer: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is not None:
        monkeypatch.setattr(os, "link", no_links(getattr(errno, answer)))
    folder = tmp_path / "new"
    assert write_file(folder / "a", b"the first", exclusive=True)
    assert not write_file(folder / "a", b"the second", exclusive=True)
    (folder / "b").symlink_to("/mnt/not-mounted")
    assert not write_file(folder / "b", b"through a link", exclusive=True)
    shown = {
        file.name: file for file in folder.iterdir() if not file.name.startswith(".")
    }
    assert shown.keys() == {"a", "b"}
    assert shown["a"].read_bytes() == b"the first"
    assert shown["b"].is_symlink()


@pytest.mark.parametrize("answer", ["ENOSPC", "EIO", "EROFS"])
def test_a_disk_that_refuses_is_not_one_without_links(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links(getattr(errno, answer)))
    with pytest.raises(OSError, match=os.strerror(getattr(errno, answer))):
        write_file(tmp_path / "a", b"the first", exclusive=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_neither_links_nor_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links(errno.EPERM))
    monkeypatch.setattr(fcntl, "flock", lambda *given: no_links(errno.ENOLCK)("", ""))
    with pytest.raises(StorageError) as refusal:
        write_file(tmp_path / "a", b"the first", exclusive=True)
    assert str(tmp_path) in str(refusal.value)
    assert not (tmp_path / "a").exists()


WRITERS = """
import errno, os, signal, sys
from pathlib import Path
from gaam_cache.store.files import write_file
from tests.conftest import no_links

os.link = no_links(errno.EPERM)
root, content = Path(sys.argv[1]), b"x" * 2**20

def child(work):
    if pid := os.fork():
        return pid
    os._exit(0 if work() else 1)

def killed_at(place):  # before it changes a file for so many times
    count = 0
    def watch(event, details):
        nonlocal count
        if event in ("os.rename", "os.remove", "fcntl.flock") or event == "open" and details[1]:
            count += 1
            if count == place:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    return write_file(root / str(place) / "a", b"the first" + content, exclusive=True)

place, killed = 0, True
while killed:
    place += 1
    (root / str(place)).mkdir(parents=True)
    _, status = os.waitpid(child(lambda: killed_at(place)), 0)
    killed, file = os.WIFSIGNALED(status), root / str(place) / "a"
    there = file.exists()
    assert not there or file.read_bytes() == b"the first" + content, place
    signal.alarm(20)  # a reservation that nobody gives back would block
    assert write_file(file, b"the second", exclusive=True) == (not there), place
    signal.alarm(0)
assert place > 5, place

for turn in range(20):
    folder, (ear, mouth) = root / f"race-{turn}", os.pipe()
    folder.mkdir()
    def race(mine):
        os.close(mouth)
        os.read(ear, 1)  # until the other end is closed: all begin at once
        return write_file(folder / "a", mine, exclusive=True)
    of_pid = {child(lambda: race(b"%d" % n + content)): n for n in range(4)}
    os.close(mouth)
    won = {n for pid, n in of_pid.items() if os.waitpid(pid, 0)[1] == 0}
    os.close(ear)
    assert len(won) == 1, won
    assert (folder / "a").read_bytes() == b"%d" % won.pop() + content
"""


def test_without_links_one_of_several_wins_and_a_kill_blocks_nobody(
    tmp_path: Path,
) -> None:
    root = Path(__file__).parents[3]
    environ = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", WRITERS, tmp_path],
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


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
        (
            True,
            ["file", "new", "a/b/new", "to-file"],
            ["empty", "to-full", "pipe", "file/x"],
        ),
        (
            False,
            ["empty", "full", "a/b/new", "to-full/new"],
            ["file", "to-file", "file/x"],
        ),
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
            replace_folder(Path("source"), Path(name), lambda _: True, overwrite=True),
        ):
            pytest.fail(name)
    for name in ("new", "empty"):
        with replace_folder(Path("link"), Path(name), lambda _: False) as folder:
            (folder / "f").write_text("x")
        assert [path.name for path in Path(name).iterdir()] == ["f"]
