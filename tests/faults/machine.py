"""What a machine may deny a process, brought about from inside it, before the command begins."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

MIB = 2**20


def full(descriptor: int) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)


def pipe_without_reader(descriptor: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, descriptor)


def closed(name: str, descriptor: int) -> None:
    """As after ``>&-``: Python then has no stream at all."""
    os.close(descriptor)
    setattr(sys, name, None)
    setattr(sys, f"__{name}__", None)


def few_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def little_memory(more: int) -> None:
    """So many bytes more than the process has by now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def no_file_grows() -> None:
    """What a read-only file system, or a full one, does; root may write anywhere else."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def no_temporary_folder() -> None:
    os.environ["TMPDIR"] = "/dev/null/nowhere"
    tempfile.tempdir = None
    tempfile._candidate_tempdir_list = lambda: ["/dev/null/nowhere"]  # type: ignore[attr-defined]


def home(path: str | None) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_HOME"):
        os.environ.pop(name, None)
    if path is not None:
        os.environ["HOME"] = path


def folder_gone() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)  # noqa: PTH106


def ascii_only() -> None:
    """As under PYTHONIOENCODING=ascii, the strictest there is."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", encoding="ascii", errors="strict", closefd=False)  # noqa: PTH123, SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def clock(seconds: float) -> None:
    time.time = lambda: seconds
    time.time_ns = lambda: int(seconds) * 10**9


REFUSALS: dict[str, Callable[[], object]] = {
    "stdout is full": partial(full, 1),
    "stdout is closed": partial(closed, "stdout", 1),
    "nobody reads stdout": partial(pipe_without_reader, 1),
    "stderr is full": partial(full, 2),
    "stderr is closed": partial(closed, "stderr", 2),
    "nobody reads stderr": partial(pipe_without_reader, 2),
    "stdin is closed": partial(closed, "stdin", 0),
    "5 open files": partial(few_files, 5),
    "8 open files": partial(few_files, 8),
    "32 open files": partial(few_files, 32),
    # with none at all CPython itself waits for ever for a thread that could not start
    "8 MiB more memory": partial(little_memory, 8 * MIB),
    "no file grows": no_file_grows,
    "no temporary folder": no_temporary_folder,
    "no HOME": partial(home, None),
    "HOME cannot be written": partial(home, "/dev/null/nowhere"),
    "the current folder is gone": folder_gone,
    "ASCII alone": ascii_only,
    "the clock says 1970": partial(clock, 0.0),
    "the clock says 2106": partial(clock, 2.0**32),
}
HARMLESS = {
    "stderr is full",
    "stderr is closed",
    "nobody reads stderr",
    "nobody reads stdout",
    "stdin is closed",
    "32 open files",
    "no HOME",
    "HOME cannot be written",
    "ASCII alone",
    "the clock says 1970",
    "the clock says 2106",
}
"""Every command does its work all the same."""
