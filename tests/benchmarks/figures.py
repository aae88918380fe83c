"""The figures of a benchmark, on the disk as soon as each is measured, or why there is none."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

WITHOUT_LIMIT = 1e6
"""Seconds of a rehearsal, whose machine may be slow."""


class Figures:
    """What was measured so far: the machine may end before the benchmark does.

    Attributes:
        content: name -> figure, a JSON value.
    """

    def __init__(self, file: Path | None) -> None:
        self.content: dict[str, Any] = {}
        self._file = file

    def add(self, name: str, figure: Any, group: str | None = None) -> None:
        """Print a figure, and write all that there are to the file.

        Args:
            name: of the figure.
            figure: a JSON value.
            group: name of a dictionary of ``content`` that gets the figure, if any.
        """
        figures = self.content
        if group is not None:
            figures = self.content.setdefault(group, {})
        figures[name] = figure
        print(f"{name}: {json.dumps(figure)}", flush=True)
        if self._file is not None:
            self._file.write_text(json.dumps(self.content, indent=2))


class LateError(BaseException):
    """A measurement took too long; no library that catches its errors may swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``LateError`` inside of the context once the time is over."""

    def end(number: int, frame: FrameType | None) -> None:
        raise LateError

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def try_within(seconds: float, measure: Callable[[], object]) -> object:
    """The figure that ``measure`` returns, or in words why there is none."""
    if seconds <= 0:
        return "not begun: the time is over"
    try:
        with time_limit(seconds):
            return measure()
    except LateError:
        return f"ended after {seconds:.0f} s"
    # any library may fail here: the next figure is measured all the same
    except Exception as error:  # noqa: BLE001
        message = (str(error).strip().splitlines() or [""])[0]
        return f"failed: {type(error).__name__}: {message[:300]}"
