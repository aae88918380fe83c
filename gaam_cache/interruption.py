"""SIGINT and SIGTERM: the first unwinds the command, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

EXIT_CODE = 130
MESSAGE = "interrupted; what is finished is kept: run the same again"
_SHOW_CURSOR = "\x1b[?25h"
_asked = False


def go_on() -> None:
    """Raise KeyboardInterrupt if a signal asked for it before; called wherever progress is shown.

    Python drops an exception that a signal handler raises while a destructor or a callback of the
    garbage collector runs. A long computation would then never end by the first signal. Where the
    exception did arrive, what is being finished meanwhile is left in peace.
    """
    unwinding = sys.exc_info()[0] is not None
    if _asked and not unwinding and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def unwind_on_signals() -> None:
    """From now on the first signal raises KeyboardInterrupt, and a second one does not wait."""
    global _asked  # noqa: PLW0603 a signal belongs to the process
    _asked = False
    _on_signals(_unwind)


def end_on_signals() -> None:
    """From now on a signal ends the process: nothing is left that could be unwound."""
    _on_signals(_end)


def _on_signals(handler: Callable[[int, Any], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup or a script's '&'
            signal.signal(number, handler)


def _unwind(number: int, frame: Any) -> None:
    global _asked  # noqa: PLW0603 a signal belongs to the process
    _asked = True
    end_on_signals()
    raise KeyboardInterrupt


def _end(number: int, frame: Any) -> None:
    # print may be what was interrupted, and a progress bar may have hidden the cursor
    os.write(2, f"{_SHOW_CURSOR if os.isatty(2) else ''}{MESSAGE}\n".encode())
    os._exit(EXIT_CODE)
