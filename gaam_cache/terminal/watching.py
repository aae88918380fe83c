"""Looking again and again at what changes."""

from __future__ import annotations

import sys
import time

from gaam_cache.terminal import interruption

SECONDS = 5.0
"""Between two looks."""
_CLEAR = "\x1b[H\x1b[2J"


def pause() -> None:
    """Wait until it is worth looking again; on a terminal what follows replaces what was there.

    Raises:
        KeyboardInterrupt: a signal asked for it.
    """
    time.sleep(SECONDS)
    interruption.go_on()
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
