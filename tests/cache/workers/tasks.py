"""What workers of the tests do; here, because a function reaches another process by its name.

``python -m tests.cache.workers.tasks ENGINE TASK FOLDER`` runs one of them with two workers.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from gaam_cache.common import errors, terminal
from gaam_cache.common.errors import GaamError, GaamWarning
from gaam_cache.config import WorkerConfig
from gaam_cache.workers import Task, Worker, load_engine

DETAILS = {
    name: f"{name}, 日本 and\ntwo lines"
    for name in ("expected", "found", "where", "hint")
}
ERRORS = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, GaamError)
]
LARGE = 2**21
"""Bytes; a pipe holds 2**16."""


class UnsendableError(Exception):
    """As those of some libraries: it can be sent and not be received."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def talk(argument: Any, place: Worker, tell: Any) -> Any:
    """Say much, some of it large, and return something large."""
    for number in range(100):
        tell("count", number)
    tell("large", bytes(LARGE))
    for _ in range(3):
        warnings.warn(f"worker {place.number} warns", GaamWarning, stacklevel=1)
    return argument, place, os.getpid(), bytes(LARGE)


def fail(argument: str, place: Worker, tell: Any) -> Any:
    """The first raises what is asked for, the others wait to be ended."""
    if place.number:
        wait_for_ever(None, place, tell)
    if argument == "UnsendableError":
        raise UnsendableError(code=7)
    if argument == "OSError":
        raise OSError(28, "No space left on device", "somewhere")
    raise getattr(errors, argument)("it went wrong", **DETAILS)


def note(folder: Path, what: str) -> int:
    """Write down that something happens; how often it did before."""
    number = len(list(folder.glob(f"{what}.*")))
    (folder / f"{what}.{number}").touch(exist_ok=False)
    return number


def wait_for(path: Path) -> None:
    """Until somebody has made it, or for ever."""
    while not path.exists():
        time.sleep(0.01)


def die_twice(folder: Path, place: Worker, tell: Any) -> Any:
    """The first worker is killed twice, each time when it has been heard, then does its work."""
    if place.number:
        wait_for(folder / "here.2")
        return place.number
    tell("here", place.number)
    life = note(folder, "begun")
    wait_for(folder / f"here.{life}")
    if life < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return place.number


def die_always(folder: Path, place: Worker, tell: Any) -> Any:
    """The first worker is killed whenever it has been heard; the others wait for its end."""
    if place.number:
        wait_for(folder / "died.0")
        return place.number
    tell("here", place.number)
    wait_for(folder / "here.0")
    return os.kill(os.getpid(), signal.SIGKILL)


def all_die(folder: Path, place: Worker, tell: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever(folder: Path | None, place: Worker, tell: Any) -> Any:
    """Until it is told to end."""
    if folder is not None:
        (folder / f"pid.{place.number}").write_text(str(os.getpid()))
    while True:
        tell("progress", (0, 1, "still waiting"))
        time.sleep(0.05)


def compute_for_ever(folder: Path, place: Worker, tell: Any) -> Any:
    """Where Python never looks at a signal; for some hours."""
    (folder / f"pid.{place.number}").write_text(str(os.getpid()))
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def task_of(name: str, argument: Any, folder: Path) -> Task:
    return Task(globals()[name], argument, folder, "cpu")


if __name__ == "__main__":
    terminal.unwind_on_signals()
    engine, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    os.sched_getaffinity = lambda pid: {0, 1}  # two workers on any machine
    context = multiprocessing.get_context("spawn")
    terminate = context.Process.terminate

    def noted(process: Any) -> None:
        (folder / "stopping").touch()
        terminate(process)

    context.Process.terminate = noted  # type: ignore[assignment,method-assign]
    placing = WorkerConfig(engine=engine, devices="2")
    try:
        load_engine(placing).run(
            task_of(name, folder, folder), placing, lambda *said: None
        )
    except KeyboardInterrupt:
        sys.exit(terminal.INTERRUPTED_EXIT_CODE)
