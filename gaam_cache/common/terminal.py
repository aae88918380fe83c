"""The terminal side of the command line: progress, signals, errors, entry point."""

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
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gaam_cache.common.devices import as_refusal as as_refusal
from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.common.log import show_log_lines
from gaam_cache.common.messages import duration, nearest, tell, visible
from gaam_cache.common.paths import absolute_path
from gaam_cache.common.settings import settings_of

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
ReportProgress = Callable[[int, int, str], None]
"""Called with (done, total, current work); a total of 0 is not known yet."""
LINE_SECONDS = 30.0
EXIT_CODE = 130  # of an interrupted program, as shells have it
GARBAGE = gc.get_threshold()  # the usual threshold of the garbage collector
MESSAGE = "interrupted; finished shards and seeds are kept: run the same again"
# SIGHUP: somebody closed the terminal
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OPTION_ALIASES = {
    "learning-rate": "--lr",
    "n-seeds": "--seeds",
    "num-seeds": "--seeds",
    "model": "--encoder",
    "label-smoothing": "--loss",
}
"""Names of options in other programs -> our options."""


def no_progress(done: int, total: int, text: str) -> None:
    """Report nothing."""


def with_progress(
    items: Iterable[T], report: ReportProgress, text: str, *, every: int = 2048
) -> Iterator[T]:
    """The same items; their count is reported after every 2,048 of them."""
    report(0, 0, text)
    for count, item in enumerate(items):
        if count % every == every - 1:
            report(count + 1, 0, text)
        yield item


@contextmanager
def show_progress(
    title: str, unit: str, *, quiet: bool = False, say: str = ""
) -> Iterator[ReportProgress]:
    """Show progress on stderr: a bar, or a line every 30 s without a terminal.

    Args:
        title: the name of the work.
        unit: what is counted.
        quiet: show nothing.
        say: a line before the work.
    """
    is_live = bool(not quiet and sys.stderr and sys.stderr.isatty())
    bar = _new_bar(title, unit)
    task = bar.tasks[0]
    last_line_time = time.monotonic()

    def show(done: int, total: int, text: str) -> None:
        nonlocal last_line_time
        # another phase of the work has another speed
        if total != (task.total or 0):
            bar.reset(task.id)
            task.total = total or None
        bar.update(task.id, completed=done, description=visible(text))
        if is_live or quiet or time.monotonic() - last_line_time < LINE_SECONDS:
            return

        last_line_time = time.monotonic()
        count = f"{done:,}/{total:,} {unit}" if total else f"{done:,} {unit}"
        seconds = task.time_remaining
        time_left = f", {duration(seconds)} left" if seconds is not None else ""
        tell(f"{title} {count}{time_left}; {text}", to=sys.stderr)

    def report(done: int, total: int, text: str) -> None:
        # the work goes on if nobody reads stderr any more
        with suppress(OSError):
            show(done, total, text)

    if say and not quiet:
        tell(say, to=sys.stderr)
    # the work begins, and the imports are done: see ``run``
    gc.set_threshold(*GARBAGE)
    with bar if is_live else nullcontext():
        yield report


def _new_bar(title: str, unit: str) -> "Progress":
    """A bar on stderr with one task, whose total is not known yet."""
    from rich import console, progress

    # output that goes to a file is not for the bar to move
    redirects_stdout = bool(sys.stdout and sys.stdout.isatty())
    bar = progress.Progress(
        title,
        progress.BarColumn(16),
        progress.MofNCompleteColumn(),
        unit,
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description:.36}", markup=False),
        console=console.Console(stderr=True),
        transient=True,
        redirect_stdout=redirects_stdout,
        speed_estimate_period=3600,
    )
    bar.add_task("", total=None)
    return bar


@contextmanager
def warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """Pass our warnings to ``say`` inside the block; show other warnings as usual."""
    with warnings.catch_warnings():
        show_as_usual = warnings.showwarning

        def show(
            message: Any, category: type[Warning], *position: Any, **options: Any
        ) -> None:
            if issubclass(category, GaamWarning):
                say(str(message))
            else:
                show_as_usual(message, category, *position, **options)

        warnings.showwarning = show
        # Python shows a warning once for each line of code: ours differ by their text
        warnings.simplefilter("always", GaamWarning)
        yield


def unwind_on_signals() -> None:
    """Raise KeyboardInterrupt at the first signal; a second one ends the process."""
    _on_signals(_stop)


def _on_signals(handler: Any) -> None:
    for number in SIGNALS:
        # nohup and the '&' of a script ignore signals on purpose
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    _on_signals(signal.SIG_DFL)
    raise KeyboardInterrupt


def run(app: Callable[..., Any], settings: Mapping[str, type]) -> NoReturn:
    """Run a command line and exit; every error becomes one message and an exit code.

    Args:
        app: the commands, as typer has them.
        settings: command -> the class of its configuration, if it has one.
    """
    unwind_on_signals()
    # imports make many objects that stay: the collector need not look at them yet
    gc.set_threshold(2**20)
    for stream in (sys.stdout, sys.stderr):
        # a stream may be closed, or be an object of a caller
        with suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    def warn(message: str) -> None:
        tell(f"warning: {' '.join(message.split())}", to=sys.stderr)

    try:
        with warnings_to(warn):
            exit_code = _run_command(app, settings)
    finally:
        _on_signals(signal.SIG_DFL)
        gc.set_threshold(*GARBAGE)
    if exit_code == EXIT_CODE:
        tell(MESSAGE, to=sys.stderr)
    sys.exit(exit_code)


def _run_command(app: Callable[..., Any], settings: Mapping[str, type]) -> int:
    """The exit code of a command, whose error is printed."""
    from typer.exceptions import TyperException

    try:
        # without a working folder a library would end the process: we refuse first
        absolute_path(".")
        show_log_lines()
        exit_code = int(app(standalone_mode=False) or 0)
        sys.stdout.flush()
        return exit_code
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            return 0
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return EXIT_CODE
    except TyperException as error:
        refusal = _usage_error(error, settings)
    except Exception as error:
        number = getattr(error, "errno", None)
        if number in (errno.EPIPE, errno.ENOSPC):
            _discard_stdout()
        # the reader of a pipe has enough
        if number == errno.EPIPE:
            return 0
        known_error = as_refusal(error)
        # a bug of ours needs its traceback
        if known_error is None:
            raise
        refusal = known_error
    tell(f"error: {refusal}", to=sys.stderr)
    return refusal.exit_code


def _discard_stdout() -> None:
    """Send what is still to be printed nowhere: Python would fail once more at exit."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_error(error: Any, settings: Mapping[str, type]) -> GaamError:
    """A refusal of the command line parser, in the form of all our messages."""
    message = error.format_message()
    message = message.partition(" (Possible")[0].partition(", unable")[0].rstrip(".")
    message = message[:1].lower() + message[1:]

    hint = "gaam --help"
    options: set[str] = set()
    keys: list[str] = []
    context = error.ctx
    if context is not None:
        hint = f"{context.command_path} --help"
        for parameter in context.command.params:
            options.update(parameter.opts)
        config = settings.get(str(context.command.name))
        if config is not None:
            keys = [
                setting.key for setting in settings_of(config) if not setting.option
            ]

    name = str(getattr(error, "option_name", "")).lstrip("-")
    suggestions = list(getattr(error, "possibilities", None) or ())
    alias = OPTION_ALIASES.get(name)
    if alias in options:
        suggestions.insert(0, alias)
    if suggestions:
        hint = f"did you mean '{suggestions[0]}'?"
    # the word may be the name of a setting that has no option
    if name in keys or not suggestions:
        key = nearest(name, keys)
        if key:
            hint = f"did you mean '--set {key}=VALUE'?"
    return ConfigError(message, hint=hint)


def entry() -> None:
    """The command ``gaam``: ``cli.py`` of the checkout, or ``_cli.py`` in a wheel."""
    package = Path(__file__).parents[1]
    file = package / "_cli.py"
    if not file.exists():
        file = package.parent / "cli.py"
    spec: Any = importlib.util.spec_from_file_location("gaam_cli", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
