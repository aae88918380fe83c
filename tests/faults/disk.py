"""Stands between a command and the disk: counts what it does there, and strikes at the Nth.

Seen are the creating and writing of files, fsync, rename, link, unlink and mkdir, all of them only
below one folder, whichever thread they come from.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Act = Callable[[], Any]


def named(path: Any) -> str:
    """The absolute path of a path or of an open file."""
    if isinstance(path, int):
        return str(Path(f"/proc/self/fd/{path}").readlink())
    return str(Path(os.fspath(path)).absolute())


class Disk:
    """The calls of this process below ``folder``; the ``nth`` one meets ``strike``."""

    def __init__(self, folder: str, nth: int, strike: Strike, operations: list[str] | None) -> None:
        self.folder = folder
        self.left = nth
        self.strike = strike
        self.operations = operations

    def install(self) -> None:
        """Put this between Python and the system calls; pathlib uses the same functions."""
        for name in ("fsync", "rename", "replace", "link", "unlink", "remove", "mkdir"):
            setattr(os, name, self._watched(name, getattr(os, name)))
        opened = io.open

        def watched_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            def act() -> Any:
                return opened(file, mode, *arguments, **options)

            if not set(mode) & set("wxa+") or not self.covers(file):
                return act()
            return WatchedFile(self.reach("create", os.fspath(file), act), os.fspath(file), self)

        io.open = watched_open  # type: ignore[assignment]

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            def act() -> Any:
                return function(path, *arguments, **options)

            return self.reach(name, path, act) if self.covers(path) else act()

        return call

    def covers(self, path: Any) -> bool:
        """Whether a path or an open file lies below the folder, or is it."""
        return Path(named(path)).is_relative_to(self.folder)

    def reach(self, operation: str, path: Any, act: Act, half: Act | None = None) -> Any:
        """Do ``act``, or let the strike decide if this is the Nth; ``half`` does a part of it."""
        if self.operations is not None and operation not in self.operations:
            return act()
        self.left -= 1
        if self.left != 0:
            return self.strike.other(operation, path, act)
        return self.strike.nth(operation, path, act, half)


class WatchedFile:
    """An open file whose writes the disk sees."""

    def __init__(self, file: Any, path: str, disk: Disk) -> None:
        self._file = file
        self._path = path
        self._disk = disk

    def write(self, content: bytes) -> Any:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        return self._disk.reach("write", self._path, lambda: self._file.write(content), half)

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Strike:
    """What happens at the Nth call; here nothing."""

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        return act()

    def other(self, operation: str, path: Any, act: Act) -> Any:
        """What happens at every other call."""
        return act()


class Kill(Strike):
    """SIGKILL before the call, in the middle of it where it writes."""

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        if half is not None:
            half()
        os.kill(os.getpid(), signal.SIGKILL)


class Signal(Strike):
    """Signals in quick succession, before the call or after it."""

    def __init__(self, numbers: list[int], *, after: bool) -> None:
        self.numbers = numbers
        self.after = after

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        if self.after:
            try:
                return act()
            finally:
                self._send(self.numbers)
        self._send(self.numbers)
        return act()

    def _send(self, numbers: list[int]) -> None:
        if numbers:
            try:
                os.kill(os.getpid(), numbers[0])  # raises where this is the main thread
            finally:
                self._send(numbers[1:])


class Hang(Signal):
    """The call never returns, and then come signals."""

    answered: Any = None

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers, after=False)

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        for number in self.numbers:
            while signal.getsignal(number) is self.answered:
                time.sleep(0.001)  # until the first has been taken note of
            self.answered = signal.getsignal(number)
            os.kill(os.getpid(), number)
        threading.Event().wait()


class Fail(Strike):
    """The call fails; a write after half of it."""

    def __init__(self, errno: int) -> None:
        self.errno = errno

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        if half is not None:
            half()
        raise OSError(self.errno, os.strerror(self.errno), str(path))


class Overtaken(Strike):
    """Before the call, another job runs from its beginning to its end."""

    def __init__(self, address: str, job: dict[str, Any], note: str) -> None:
        self.address = address
        self.job = job
        self.note = Path(note)
        """Gets what was about to be done, and the receipts that were there."""

    def nth(self, operation: str, path: Any, act: Act, half: Act | None) -> Any:
        folder = Path(self.job["arguments"][self.job["arguments"].index("--out") + 1])
        there = [receipt.name for receipt in folder.glob("shards/[!.]*.json")]
        name = Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else path
        self.note.write_text(json.dumps({"path": str(name), "there": there}))
        answer = ask(self.address, self.job)
        if answer["code"]:
            raise RuntimeError(answer["err"])
        return act()


def ask(address: str, job: dict[str, Any]) -> dict[str, Any]:
    """Give a job to the server of forks and wait for the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(job).encode() + b"\n")
        return json.loads(connection.makefile("rb").readline())


class Record(Strike):
    """Writes down every call, and beside it what the interpreter itself reports of them."""

    def __init__(self, folder: str, path: str) -> None:
        self.folder = folder
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sys.addaudithook(self._hear)

    def other(self, operation: str, path: Any, act: Act) -> Any:
        self._note("call", operation, path)
        return act()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
            event = "create"
        elif event not in ("os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate"):
            return
        if Path(named(arguments[0])).is_relative_to(self.folder):
            self._note("audit", event.removeprefix("os."), arguments[0])

    def _note(self, source: str, operation: str, path: Any) -> None:
        os.write(self.file, f"{source} {operation} {named(path)}\n".encode())
