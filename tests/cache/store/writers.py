"""Processes that write one file where the file system has no hard links.

``test_files`` runs this file: it forks, which a process of pytest should not.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaam_cache.store.files import write_file
from tests.conftest import no_links

CONTENT = b"x" * 2**20
CHANGES = ("os.rename", "os.remove", "fcntl.flock")
RACERS = 4


def start_child(work: Callable[[], bool]) -> int:
    """A process that ends with 0 if its work succeeded; returns its number."""
    pid = os.fork()
    if pid:
        return pid
    os._exit(0 if work() else 1)


def write_until_killed(file: Path, place: int) -> bool:
    """Write, and die just before the change of a file that has this number."""
    num_changes = 0

    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal num_changes
        opens_a_file = event == "open" and bool(details[1])
        if event in CHANGES or opens_a_file:
            num_changes += 1
            if num_changes == place:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    return write_file(file, b"the first" + CONTENT, exclusive=True)


def check_that_a_kill_blocks_nobody(folder: Path) -> None:
    """Kill a writer in each place in turn: a second one writes what is not there."""
    place = 0
    killed = True
    while killed:
        place += 1
        file = folder / str(place) / "a"
        file.parent.mkdir(parents=True)

        def write(file: Path = file, place: int = place) -> bool:
            return write_until_killed(file, place)

        _, status = os.waitpid(start_child(write), 0)
        killed = os.WIFSIGNALED(status)
        is_there = file.exists()
        if is_there:
            assert file.read_bytes() == b"the first" + CONTENT, place
        # a reservation that nobody gives back would block
        signal.alarm(20)
        assert write_file(file, b"the second", exclusive=True) == (not is_there), place
        signal.alarm(0)
    assert place > 5, place


def check_that_one_wins(folder: Path) -> None:
    """Let processes write at once: one wins, and the file is its."""
    folder.mkdir()
    file = folder / "a"
    read_end, write_end = os.pipe()

    def race(content: bytes) -> bool:
        os.close(write_end)
        # waits until the other end is closed: all begin at once
        os.read(read_end, 1)
        return write_file(file, content, exclusive=True)

    contents: dict[int, bytes] = {}
    for number in range(RACERS):
        content = str(number).encode() + CONTENT

        def write(content: bytes = content) -> bool:
            return race(content)

        contents[start_child(write)] = content
    os.close(write_end)
    winners = [pid for pid in contents if os.waitpid(pid, 0)[1] == 0]
    os.close(read_end)
    assert len(winners) == 1, winners
    assert file.read_bytes() == contents[winners[0]]


def main(root: Path) -> None:
    os.link = no_links(errno.EPERM)
    check_that_a_kill_blocks_nobody(root / "kills")
    for turn in range(20):
        check_that_one_wins(root / f"race-{turn}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
