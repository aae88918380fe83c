"""What a command says on stderr: progress (a bar, or a line now and then) and warnings."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gaam_cache import interruption
from gaam_cache.errors import GaamWarning

LINE_SECONDS = 30.0


class Progress:
    """A callback ``(done, total, what is going on)``, and lines that stay.

    Args:
        update: called with the three.
        line: called with a line.
    """

    def __init__(
        self, update: Callable[[int, int, str], None], line: Callable[[str], None]
    ) -> None:
        self._update = update
        self.line = line

    def __call__(self, done: int, total: int, text: str) -> None:
        """Show how far the work is.

        Raises:
            KeyboardInterrupt: a signal asked for it, and nothing came of it then.
        """
        interruption.go_on()
        self._update(done, total, text)


@contextmanager
def show_progress(title: str, unit: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A callback ``(done, total, what is going on)`` that shows how far the work is.

    Args:
        title: what is being done.
        unit: what ``done`` and ``total`` count.
        quiet: show nothing.
    """
    if quiet:
        yield Progress(lambda done, total, text: None, lambda text: None)
    elif sys.stderr.isatty():
        with _bar(title, unit) as progress:
            yield progress
    else:
        yield _lines(title, unit)


@contextmanager
def _bar(title: str, unit: str) -> Iterator[Progress]:
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=20),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn(unit),
        rich_progress.TimeRemainingColumn(compact=True),
        rich_progress.TextColumn("{task.fields[text]}", style="dim"),
    )
    # stdout is not ours: what a command prints there must not end up above the bar
    with rich_progress.Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as bars:
        task = bars.add_task(title, total=None, text="")

        def update(done: int, total: int, text: str) -> None:
            bars.update(task, completed=done, total=total, text=text)

        yield Progress(update, lambda text: bars.console.print(text, markup=False, highlight=False))


def _lines(title: str, unit: str) -> Progress:
    started = last = time.monotonic()
    first: int | None = None

    def update(done: int, total: int, text: str) -> None:
        nonlocal last, first, started
        now = time.monotonic()
        if first is None:
            first, started = done, now
        if now - last < LINE_SECONDS:
            return
        last = now
        left = (now - started) * (total - done) / (done - first) if done > first else None
        about = f", about {left:,.0f} s left" if left is not None else ""
        print(f"{title}: {done:,}/{total:,} {unit}{about}; {text}", file=sys.stderr, flush=True)

    return Progress(update, lambda text: print(text, file=sys.stderr, flush=True))


def show_warnings() -> None:
    """Each warning of ours becomes one line on stderr, every time; others stay as they are."""
    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, GaamWarning):
            print("warning:", " ".join(str(message).split()), file=sys.stderr)
        else:
            others(message, category, *place, **more)

    warnings.showwarning = show
    warnings.simplefilter("always", GaamWarning)
