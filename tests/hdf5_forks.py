"""The processes that look into HDF5 files, as forks of one that has the library imported.

A process is started for every verification and every file that is imported, and is busy with
imports for most of its life. Here it is a fork of a server, which runs the very same program with
the same input, output, environment and limits, and ends with the same status.

    python -P hdf5_forks.py SOCKET
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Fork:
    """What is used of ``subprocess.Popen``."""

    def __init__(self, address: str, program: str, *, text: bool = False) -> None:
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        mode = "" if text else "b"
        self.stdin: IO[Any] = os.fdopen(ours_in, "w" + mode)
        self.stdout: IO[Any] = os.fdopen(ours_out, "r" + mode)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(address)
        socket.send_fds(self._server, [program.encode()], [theirs_in, theirs_out])
        os.close(theirs_in)
        os.close(theirs_out)
        self._answers = self._server.makefile("rb")
        self._pid = int(self._answers.readline())
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and select.select([self._server], [], [], 0)[0]:
            self.wait()
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._answers.readline())
            self._answers.close()
            self._server.close()
        return self._code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)

    def communicate(self) -> None:
        if not self.stdin.closed:
            self.stdin.close()
        self.stdout.read()
        self.stdout.close()
        self.wait()


@functools.cache
def server() -> str:
    """The address of the one server of this process."""
    from gaam_cache.format.hdf5_process import _environment

    address = str(Path(tempfile.mkdtemp(prefix="gaam-readers-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, address], cwd="/", env=_environment(),
        stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip

    def end() -> None:
        process.kill()
        process.communicate()
        Path(address).unlink(missing_ok=True)
        Path(address).parent.rmdir()

    atexit.register(end)
    while not Path(address).exists():
        assert process.poll() is None, "the server of readers did not start"
        time.sleep(0.01)
    return address


def take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what reads HDF5 files; other programs than ours are started as they were."""
    from gaam_cache.importing.containers import hdf5
    from gaam_cache.verification import inspector

    for module in (hdf5, inspector):
        monkeypatch.setattr(
            module, "start_process", functools.partial(start, module.start_process, module._PROGRAM)
        )


def start(otherwise: Callable[..., Any], ours: str, program: str, **options: Any) -> Any:
    """In the place of ``start_process``."""
    if program != ours:
        return otherwise(program, **options)
    return Fork(server(), program, **options)


def serve(address: str) -> str:
    """Wait for who asks; returns, with the program to be run, in every fork."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{address}.new")
    listening.listen(64)
    Path(f"{address}.new").rename(address)  # who sees it may connect
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        if sys.stdin.fileno() in select.select([0, listening], [], [])[0]:
            os._exit(0)  # whoever started this is gone
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return attend(connection)
        connection.close()


def attend(connection: socket.socket) -> str:
    """Fork the process that runs the program, say its id, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program, descriptors, _, _ = socket.recv_fds(connection, 4096, 2)
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return program.decode()
    os.closerange(0, 2)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(b"%d\n" % child)
    _, status = os.waitpid(child, 0)
    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


if __name__ == "__main__":
    import runpy

    import h5py  # noqa: F401 every fork finds it loaded

    runpy.run_path(serve(sys.argv[1]), run_name="__main__")
