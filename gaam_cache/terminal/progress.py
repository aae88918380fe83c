"""What a command says on stderr: progress (a bar, or a line now and then) and warnings."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gaam_cache.errors import GaamWarning
from gaam_cache.messages.duration import duration
from gaam_cache.messages.foreign_text import tell, visible
from gaam_cache.terminal import interruption

T = TypeVar("T")
Report = Callable[[int, int, str], None]
"""Called with (done, total, what is going on); a total of 0 is one that is not known yet."""
LINE_SECONDS = 30.0
ROWS_PER_REPORT = 2048


def silent(done: int, total: int, text: str) -> None:
    """Report nothing."""


def counting(
    items: Iterable[T], report: Report, text: str, *, every: int = ROWS_PER_REPORT
) -> Iterator[T]:
    """The items, while it is reported how many there were so far."""
    report(0, 0, text)
    for count, item in enumerate(items):
        if count % every == every - 1:
            report(count + 1, 0, text)
        yield item


class Course:
    """How far some work is, in words.

    Args:
        title: what is being done.
        unit: what is counted.
        clock: seconds that only go forward.
    """

    def __init__(
        self, title: str, unit: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._unit = unit
        self._clock = clock
        self._began = clock()
        self._state = (0, 0, "")
        self._first: tuple[float, int] = (self._began, 0)

    def update(self, done: int, total: int, text: str) -> None:
        """Take note of what a ``Report`` is told."""
        before = self._state
        now = self._clock()
        if (total, total or text) != (before[1], before[1] or before[2]):
            self._began = now  # another phase
            self._first = (now, done)
        elif done == self._first[1]:
            self._first = (now, done)  # what comes before the first step is not its time
        self._state = (done, total, text)

    def in_words(self, width: int | None = None) -> str:
        """One line: first how much is done and how long it takes, then what is going on.

        Args:
            width: in columns; the end is cut off where it is longer.
        """
        done, total, text = self._state
        if total:
            count = f"{done:,}/{total:,} {self._unit}"
            left = self._seconds_left()
            when = f", {duration(left)} left" if left is not None else ""
        else:
            count = f"{done:,} {self._unit}" if done else ""
            when = (", " if done else "") + duration(self._clock() - self._began)
        line = f"{self._title} {count}{when}" + (f"; {text}" if text else "")
        if width is None or len(line) <= width:
            return line
        return line[: max(0, width - 3)] + "..."[:width]

    def _seconds_left(self) -> float | None:
        done, total, _ = self._state
        since, first = self._first
        if done <= first:
            return None
        return (self._clock() - since) * (total - done) / (done - first)


class Progress:
    """A ``Report``, and lines that stay.

    Args:
        update: what to do with a report.
        line: called with a line.
    """

    def __init__(self, update: Report, line: Callable[[str], None]) -> None:
        self.done, self.total = 0, 0
        self._update = update
        self.line: Callable[[str], None] = lambda text: line(visible(text))

    def __call__(self, done: int, total: int, text: str) -> None:
        """Show how far the work is.

        Raises:
            KeyboardInterrupt: a signal asked for it, and nothing came of it then.
        """
        interruption.go_on()
        self.done, self.total = done, total
        self._update(done, total, visible(text))


@contextmanager
def show_progress(title: str, unit: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show on stderr how far the work is: a line that changes, or a new one every 30 s.

    Args:
        title: what is being done.
        unit: what ``done`` and ``total`` count.
        quiet: show nothing.
    """
    if quiet:
        yield Progress(silent, silent_line)
    elif sys.stderr is not None and sys.stderr.isatty():
        with _changing_line(Course(title, unit)) as progress:
            yield progress
    else:
        yield _lines(Course(title, unit))


@contextmanager
def _changing_line(course: Course, console: Any = None) -> Iterator[Progress]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = console or Console(stderr=True)

    def line() -> Text:
        text = course.in_words(console.width)
        return Text(text, no_wrap=True, overflow="crop", end="")

    # stdout is not ours: what a command prints there must not end up above the line
    with Live(get_renderable=line, console=console, transient=True, redirect_stdout=False):
        yield Progress(
            course.update, lambda text: console.print(text, markup=False, highlight=False)
        )


def _lines(course: Course) -> Progress:
    last = time.monotonic()

    def update(done: int, total: int, text: str) -> None:
        nonlocal last
        course.update(done, total, text)
        now = time.monotonic()
        if now - last >= LINE_SECONDS:
            last = now
            say(course.in_words())

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    return Progress(update, say)


def silent_line(text: str) -> None:
    """Say nothing."""


def show_warnings() -> None:
    """Each warning of ours becomes one line on stderr, every time; others stay as they are."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, GaamWarning):
            tell(f"warning: {' '.join(str(message).split())}", to=sys.stderr)
        else:
            others(message, category, *place, **more)

    warnings.showwarning = show
    warnings.simplefilter("always", GaamWarning)
