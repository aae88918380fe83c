"""What runs in a worker of this machine: how it begins, speaks and ends."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from gaam_cache import terminal
from gaam_cache.engines._base import Place, Task, serve

UNWINDING_SECONDS = 5.0
"""For what is at work when whoever started us is no more: as long as a large shard is written."""

_mouth: Connection | None = None
_speaking = threading.Lock()
_at_work = threading.Event()
_let_go = threading.Event()


def begin(mouth: Connection, leash: Connection, cores: list[int], place: Place) -> None:
    """Before anything large is imported: its cores, its threads, its end.

    Args:
        mouth: where it says something.
        leash: of which whoever started it holds the other end, and nobody else.
        cores: that it may use, where it is to compute with them.
        place: where it works.
    """
    global _mouth  # noqa: PLW0603 what the process was started with
    _mouth = mouth
    threads = str(max(1, len(cores)))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, threads)
    if place.device == "cpu" and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # a sandbox
            os.sched_setaffinity(0, cores)
    terminal.unwind_on_signals()
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()


def work(task: Task, place: Place) -> Any:
    """Do a task.

    Raises:
        KeyboardInterrupt: whoever started us let go.
    """

    def tell(kind: str, value: Any) -> None:
        terminal.go_on()
        with suppress(OSError), _speaking:  # nobody listens any more; threads warn, too
            if _mouth is not None:
                _mouth.send((kind, value))

    _at_work.set()
    try:
        if _let_go.is_set():
            raise KeyboardInterrupt
        return serve(task, place, tell)
    finally:
        _at_work.clear()


def _end_with(leash: Connection) -> None:
    """Unwind when whoever started us lets go, and end when there is nobody who would end us."""
    with suppress(EOFError, OSError):
        leash.recv()
    _let_go.set()
    if _at_work.is_set():
        terminal.ask()
    if (parent := parent_process()) is not None:
        parent.join()
    latest = time.monotonic() + UNWINDING_SECONDS
    while _at_work.is_set() and time.monotonic() < latest:
        time.sleep(0.05)
    os._exit(terminal.EXIT_CODE)
