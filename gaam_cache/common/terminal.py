"""What the command line needs beside its commands: progress, signals, refusals, the entry point."""

import errno
import gc
import importlib.util
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gaam_cache.common.devices import as_refusal as as_refusal
from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.common.messages import duration, nearest, tell, visible
from gaam_cache.common.paths import absolute_path

T = TypeVar("T")
ReportProgress = Callable[[int, int, str], None]
"""Called with (done, total, what is going on); a total of 0 is one that is not known yet."""
LINE_SECONDS = 30.0
EXIT_CODE = 130
GARBAGE = gc.get_threshold()
MESSAGE = "interrupted; finished shards and seeds are kept: run the same again"
SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
)  # the last by a terminal that is closed
SAID = {
    "learning-rate": "--lr",
    "n-seeds": "--seeds",
    "num-seeds": "--seeds",
    "model": "--encoder",
}
SAID |= {"label-smoothing": "--loss"}  # of which it is an option


def no_progress(done: int, total: int, text: str) -> None:
    """Report nothing."""


def with_progress(
    items: Iterable[T], report: ReportProgress, text: str, *, every: int = 2048
) -> Iterator[T]:
    """The items, while it is reported how many there were so far."""
    report(0, 0, text)
    for count, item in enumerate(items):
        if count % every == every - 1:
            report(count + 1, 0, text)
        yield item


@contextmanager
def show_progress(
    title: str, unit: str, *, quiet: bool = False, say: str = ""
) -> Iterator[ReportProgress]:
    """Show on stderr, after ``say``, how far the work is: a bar, or elsewhere a line every 30 s."""
    from rich import console, progress

    live = bool(not quiet and sys.stderr and sys.stderr.isatty())
    text = progress.TextColumn("{task.description:.36}", markup=False)
    count = progress.BarColumn(16), progress.MofNCompleteColumn(), unit
    bar = progress.Progress(
        *(title, *count, progress.TimeRemainingColumn(), text),
        console=console.Console(stderr=True),
        transient=True,
        redirect_stdout=bool(
            sys.stdout and sys.stdout.isatty()
        ),  # else it is for a file
        speed_estimate_period=3600,
    )
    bar.add_task("", total=None)
    said, [task] = time.monotonic(), bar.tasks

    def report(done: int, total: int, text: str) -> None:
        nonlocal said
        with suppress(OSError):  # nobody reads stderr any more: the work goes on
            if total != (task.total or 0):  # another phase has another speed
                bar.reset(task.id)
                task.total = total or None
            bar.update(task.id, completed=done, description=visible(text))
            if live or quiet or time.monotonic() - said < LINE_SECONDS:
                return
            said, seconds = time.monotonic(), task.time_remaining
            count = f"{done:,}/{total:,} {unit}" if total else f"{done:,} {unit}"
            left = f", {duration(seconds)} left" if seconds is not None else ""
            tell(f"{title} {count}{left}; {text}", to=sys.stderr)

    if say and not quiet:
        tell(say, to=sys.stderr)
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    with bar if live else nullcontext():
        yield report


@contextmanager
def warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """While open ``say`` is called with what we warn of; other warnings are shown as usual."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(
            message: Any, category: type[Warning], *place: Any, **more: Any
        ) -> None:
            if issubclass(category, GaamWarning):
                say(str(message))
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", GaamWarning)
        yield


def unwind_on_signals() -> None:
    """From now on the first signal raises KeyboardInterrupt, and a second one ends the process."""
    _on_signals(_stop)


def _on_signals(handler: Any) -> None:
    for number in SIGNALS:
        if (
            signal.getsignal(number) is not signal.SIG_IGN
        ):  # as under nohup or a script's '&'
            signal.signal(number, handler)


def _stop(number: int, frame: Any) -> None:
    _on_signals(signal.SIG_DFL)
    raise KeyboardInterrupt


def run(app: Callable[..., Any], settings: Mapping[str, type]) -> NoReturn:
    """Run a command line and exit; every error becomes one message and an exit code.

    ``settings`` are the configurations of commands that have one.
    """
    unwind_on_signals()
    gc.set_threshold(
        2**20
    )  # until work begins: what imports make stays, and is seldom looked at
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # closed, or another's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    def warn(said: str) -> None:
        tell(f"warning: {' '.join(said.split())}", to=sys.stderr)

    try:
        with warnings_to(warn):
            code = _code(app, settings)
    finally:
        _on_signals(signal.SIG_DFL)
        gc.unfreeze()
        gc.set_threshold(*GARBAGE)
    if code == EXIT_CODE:
        tell(MESSAGE, to=sys.stderr)
    sys.exit(code)


def _code(app: Callable[..., Any], settings: Mapping[str, type]) -> int:
    from typer.exceptions import TyperException

    try:
        absolute_path(".")  # a library that finds no working folder ends the process
        code = int(app(standalone_mode=False) or 0)
        sys.stdout.flush()
        return code
    except SystemExit as stop:
        return (
            0 if isinstance(stop.__context__, BrokenPipeError) else int(stop.code or 0)
        )
    except KeyboardInterrupt:
        return EXIT_CODE
    except TyperException as error:
        if not error.format_message():  # without a command the help was shown
            return 2
        said: GaamError | None = _usage_error(error, settings)
    except Exception as error:
        number = getattr(error, "errno", None)
        if number in (errno.EPIPE, errno.ENOSPC):  # what is still to be printed is lost
            with suppress(OSError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if number == errno.EPIPE:  # who reads no further wants no more
            return 0
        if (said := as_refusal(error)) is None:
            raise
    tell(f"error: {said}", to=sys.stderr)
    return said.exit_code  # type: ignore[union-attr]


def _usage_error(error: Any, settings: Mapping[str, type]) -> GaamError:
    """What the parser cannot take, in the words that all refusals have."""
    from gaam_cache.common.settings import settings_of

    said = (
        error.format_message()
        .partition(" (Possible")[0]
        .partition(", unable")[0]
        .rstrip(".")
    )
    ctx, asked = error.ctx, str(getattr(error, "option_name", "")).lstrip("-")
    hint = f"{ctx.command_path} --help" if ctx else "gaam --help"
    options = (
        {name for one in ctx.command.params for name in one.opts} if ctx else set()
    )
    if near := [
        *({SAID.get(asked)} & options),
        *(getattr(error, "possibilities", None) or ()),
    ]:
        hint = f"did you mean '{near[0]}'?"
    config = settings.get(str(ctx.command.name)) if ctx else None
    only = (
        [setting.key for setting in settings_of(config) if not setting.option]
        if config
        else []
    )
    if (asked in only or not near) and (meant := nearest(asked, only)):
        hint = f"did you mean '--set {meant}=VALUE'?"
    return ConfigError(said[:1].lower() + said[1:], hint=hint)


def entry() -> None:
    """The command ``gaam``: ``cli.py`` of the checkout, which lies in a wheel as ``_cli.py``."""
    package = Path(__file__).parents[1]
    file = package / "_cli.py"
    if not file.exists():
        file = package.parent / "cli.py"
    spec: Any = importlib.util.spec_from_file_location("gaam_cli", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
