"""SIGINT, SIGTERM, SIGHUP: the first unwinds the command, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from gaam_cache.messages.foreign_text import tell

T = TypeVar("T")

EXIT_CODE = 130
MESSAGE = "interrupted; what is finished is kept: run the same again"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal that is closed sends the last; what is finished is kept then too."""
WRITER = "write"
"""How the name of a thread begins that writes what is to be kept."""
_SHOW_CURSOR = "\x1b[?25h"
_asked = False
_says = True


def go_on() -> None:
    """Raise KeyboardInterrupt if a signal asked for it before; called wherever progress is shown.

    Python drops an exception that a signal handler raises while a destructor or a callback of the
    garbage collector runs. A long computation would then never end by the first signal. Where the
    exception did arrive, what is being finished meanwhile is left in peace.
    """
    unwinding = sys.exc_info()[0] is not None
    if _asked and not unwinding and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


@contextmanager
def explained(kept: Callable[[], str]) -> Iterator[None]:
    """Let an interruption say what it leaves; ``kept`` is called when the work has unwound."""
    try:
        yield
    except KeyboardInterrupt as stop:
        # a pool that was interrupted while it started a thread does not wait for that one; pools
        # that only read may stand for ever, ours and those of libraries
        for thread in threading.enumerate():
            if thread.name.startswith(WRITER):
                _join(thread)
        stop.add_note(kept())
        raise


def _join(thread: threading.Thread) -> None:
    """Wait for a thread, also for one that the system has not started yet."""
    while thread in threading.enumerate():
        try:
            thread.join()
        except RuntimeError:  # "cannot join thread before it is started"
            time.sleep(0.001)


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call it where no KeyboardInterrupt can cut it off half-way; those reach the main thread."""
    with ThreadPoolExecutor(1, WRITER) as writer:
        return writer.submit(function, *arguments).result()


def message(stop: BaseException) -> str:
    """What to say of an interruption, from its own notes or those of what led to it."""
    notes: list[str] = []
    cause: BaseException | None = stop
    while cause is not None:
        notes += getattr(cause, "__notes__", [])
        cause = cause.__cause__ or cause.__context__
    return f"interrupted; {notes[0] if notes else 'nothing that was there before was changed'}"


def say(stop: BaseException) -> None:
    """Say it to the person, unless whoever started this process does."""
    if _says:
        tell(message(stop), to=sys.stderr)


def unwind_on_signals(*, says: bool = True) -> None:
    """From now on the first signal raises KeyboardInterrupt, and a second one does not wait.

    Args:
        says: whether this process says that it was interrupted; one of another's steps does not.
    """
    global _asked, _says  # noqa: PLW0603 a signal belongs to the process
    _asked, _says = False, says
    _on_signals(_unwind)


def ask() -> None:
    """What a first signal does, from any thread; nothing where there was one."""
    if not _asked:
        os.kill(os.getpid(), signal.SIGTERM)


def end_on_signals() -> None:
    """From now on a signal ends the process: nothing is left that could be unwound."""
    _on_signals(_end)


def _on_signals(handler: Callable[[int, Any], None]) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup or a script's '&'
            signal.signal(number, handler)


def _unwind(number: int, frame: Any) -> None:
    global _asked  # noqa: PLW0603 a signal belongs to the process
    _asked = True
    end_on_signals()
    raise KeyboardInterrupt


def _end(number: int, frame: Any) -> None:
    if number == signal.SIGHUP:
        return  # a terminal that closes sends it again by way of the shell
    try:
        # print may be what was interrupted, and a progress bar may have hidden the cursor
        said = f"{MESSAGE}\n" if _says else ""
        os.write(2, f"{_SHOW_CURSOR if os.isatty(2) else ''}{said}".encode())
    finally:
        os._exit(EXIT_CODE)
