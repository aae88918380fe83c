"""Runs ``gaam ARGUMENTS`` many times, each in a fresh fork of one process that has imported all.

Usage: python -m tests.faults.fork_server SOCKET ARGUMENTS...

``gaam ARGUMENTS`` runs once here, so that every fork finds the libraries loaded. Then every
connection to the socket sends one JSON object (a job: see ``prepare``) and receives one: the exit
status as ``subprocess`` counts it, and what was printed. The fork is a process like any other: it
starts with ``cli.main()`` and ends as the interpreter ends.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401 every fork finds it loaded
import scipy.stats  # noqa: F401
import torch
import typer.main

import cli
import gaam_cache.engines._claims
import gaam_cache.extraction.worker
import gaam_decoder.reports.pictures.pictures
import gaam_decoder.runs.unfinished
import gaam_decoder.training.sweep
from gaam_cache import terminal
from gaam_cache.encoders.text import TextEncoder
from tests.faults.disk import Disk, Fail, Hang, Kill, Overtaken, Record, Signal, Strike
from tests.faults.machine import REFUSALS
from tests.faults.notes import Notes, note_batches, note_epochs, note_reads

TIMEOUT_SECONDS = 600


def serve(address: str) -> dict[str, Any]:
    """Wait for jobs; returns only in the process that is to do one, with the job."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{address}.new")
    server.listen(64)
    Path(f"{address}.pid").write_text(str(os.getpid()))
    Path(f"{address}.new").rename(address)  # who sees it may connect
    # a shell ignores these for what it starts with '&', and so would every job
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for jobs
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            return supervise(connection)
        connection.close()


def supervise(connection: socket.socket) -> dict[str, Any]:
    """Read one job, fork the process that does it, report how that one ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job = json.loads(connection.makefile("rb").readline())
    out, err = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        connection.close()
        for end, descriptor in ((out, 1), (err, 2)):
            os.dup2(end[1], descriptor)
            for own in end:  # not what lies between them: files that the command before left open
                os.close(own)
        return job
    os.close(out[1])
    os.close(err[1])
    late = threading.Timer(TIMEOUT_SECONDS, os.kill, (child, signal.SIGQUIT))
    if "serve" not in job:
        late.start()
    texts = []
    for end in (err, out):
        with os.fdopen(end[0], "rb") as stream:
            texts.append(stream.read().decode())
    _, status = os.waitpid(child, 0)
    late.cancel()
    answer = {"code": os.waitstatus_to_exitcode(status), "out": texts[1], "err": texts[0]}
    connection.sendall(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def strike_of(job: dict[str, Any]) -> Strike:
    match job["fault"]:
        case ["kill"]:
            return Kill()
        case ["fail", errno]:
            return Fail(errno)
        case ["signal", numbers, when]:
            return Signal(numbers, after=when == "after")
        case ["hang", numbers]:
            return Hang(numbers)
        case ["overtaken", address, other, note]:
            return Overtaken(address, other, note)
        case ["record", path]:
            return Record(job["folder"], path)
    raise ValueError(job["fault"])


def prepare(job: dict[str, Any]) -> None:
    """Make the circumstances that a job asks for.

    ``folder``, ``nth``, ``operations``, ``fault``: see ``Disk``; ``file_bytes``: no file may become
    larger; ``clock``: what time.time() says; ``ignored``: a signal; ``nobody``: give up being
    root; ``to_the_end``: let the interpreter end by itself; ``no_load``: the encoder must not be
    loaded; ``shell``: run this instead, where the server runs; ``lock``: say so,
    and wait until nobody holds this file; ``impatient``: whoever has a lease and does not renew it
    between two looks has lost it; ``notes``: a file for the rows of every batch, one byte each,
    ``epochs``: one for the seeds of every epoch, and ``dies_after``: so many of either; ``reads``:
    a file for whenever rows are read; ``environ``: variables; ``every_epoch``: a training keeps
    every epoch at once;
    ``refusal``: what the machine denies, see tests/faults/machine.py; ``other_machine``: write
    other bytes, as another machine may. A job with ``serve`` is none of these: its fork runs the
    command and becomes a server at that address, until it is killed.
    """
    if "shell" in job:
        os.execvp("sh", ["sh", "-c", job["shell"]])
    if job.get("no_load"):
        TextEncoder.load = None  # type: ignore[assignment, method-assign]
    if "fault" in job:
        Disk(job["folder"], job["nth"], strike_of(job), job.get("operations")).install()
    if "file_bytes" in job:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_bytes"], resource.RLIM_INFINITY))
    if "clock" in job:
        time.time = lambda: float(job["clock"])
        time.time_ns = lambda: int(job["clock"]) * 10**9
    if job.get("other_machine"):
        build = gaam_cache.extraction.worker.build_image
        gaam_cache.extraction.worker.build_image = lambda arrays, attributes: build(
            arrays, {**attributes, "made_on": "another machine"}
        )
    if "lock" in job:
        lock = os.open(job["lock"], os.O_RDONLY)
        Path(f"{job['lock']}.{os.getpid()}").touch()
        fcntl.flock(lock, fcntl.LOCK_SH)
    if job.get("impatient"):
        gaam_cache.engines._claims.SHORTEST_PATIENCE_SECONDS = (
            gaam_cache.engines._claims.PATIENCE_IN_WORK
        ) = 0.0
    os.environ.update(job.get("environ", {}))
    if "notes" in job:
        note_batches(Notes(job["notes"], job.get("dies_after")))
    if "epochs" in job:
        note_epochs(Notes(job["epochs"], job.get("dies_after")))
    if "reads" in job:
        note_reads(Notes(job["reads"], None))
    if job.get("every_epoch"):
        gaam_decoder.runs.unfinished.SECONDS_BETWEEN_CHECKPOINTS = 0.0
        gaam_decoder.runs.unfinished.SHARE_OF_TIME = float("inf")
    if "refusal" in job:
        REFUSALS[job["refusal"]]()
    if "ignored" in job:
        signal.signal(job["ignored"], signal.SIG_IGN)
    if job.get("nobody"):
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def warm_up(arguments: list[str]) -> None:
    """Run the command once; what it leaves must be one thread, or no fork would be safe."""
    sys.argv = ["gaam", *arguments]
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    try:
        cli.main()
    except SystemExit as stop:
        if stop.code:
            raise
    for number, handler in handlers.items():  # the command made them its own
        signal.signal(number, handler)
    deadline = time.monotonic() + 300
    while len(list(Path("/proc/self/task").iterdir())) > 1:  # joined, but not yet gone
        if time.monotonic() > deadline:
            raise RuntimeError("threads are still running: a fork would be a gamble")
        time.sleep(0.01)


def main_and_out() -> None:
    """Run the command and wait for its threads, as the interpreter does before it ends.

    It would then take every module apart, which in a fork, page by page, lasts longer than all
    the rest.
    """
    code: Any = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:  # noqa: BLE001 what the interpreter would do
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)
    typer.main.get_command = functools.cache(typer.main.get_command)  # no fork builds it again
    task: dict[str, Any] = {"serve": sys.argv[1], "arguments": sys.argv[2:]}
    while "serve" in task:
        warm_up(task["arguments"])
        gc.collect()
        gc.freeze()
        task = serve(task["serve"])
    prepare(task)
    sys.argv = ["gaam", *task["arguments"]]
    if task.get("to_the_end"):
        cli.main()
    else:
        main_and_out()
