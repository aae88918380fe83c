"""The terminal side of the command line: progress, signals, errors, entry point."""

import errno
import gc
import importlib.util
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gaam_cache.common.devices import error_for_user as error_for_user
from gaam_cache.common.errors import ConfigError, GaamError, GaamNote, GaamWarning
from gaam_cache.common.live_table import LiveTable, is_live
from gaam_cache.common.log import show_log_lines
from gaam_cache.common.messages import duration, nearest, tell, visible
from gaam_cache.common.paths import absolute_path
from gaam_cache.common.settings import settings_of

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
ReportProgress = Callable[[int, int, str], None]
"""Called with (done, total, current work); the total may be ``UNKNOWN_TOTAL``."""
UNKNOWN_TOTAL = 0
LINE_SECONDS = 30.0
INTERRUPTED_EXIT_CODE = 130  # as shells have it
USUAL_GC_THRESHOLD = gc.get_threshold()  # of the garbage collector
INTERRUPTED_MESSAGE = (
    "interrupted; finished shards and seeds are kept: run the same again"
)
_is_stopped = False  # whether a signal has come
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
UNEXPECTED_WORD = re.compile(r"got unexpected extra argument\S* \((\S+?)[\s)]")
"""What the parser says of a word that belongs to no option."""


def no_progress(done: int, total: int, text: str) -> None:
    """Report nothing."""


def with_progress(
    items: Iterable[T], report: ReportProgress, text: str, *, every: int = 2048
) -> Iterator[T]:
    """Yield the same items, and report their number while they are taken.

    Args:
        items: the items, whose total number need not be known.
        report: called with (items so far, ``UNKNOWN_TOTAL``, ``text``).
        text: the current work.
        every: number of items between two reports.
    """
    report(0, UNKNOWN_TOTAL, text)
    for count, item in enumerate(items, start=1):
        if count % every == 0:
            report(count, UNKNOWN_TOTAL, text)
        yield item


@contextmanager
def show_progress(
    title: str,
    unit: str,
    *,
    quiet: bool = False,
    say: str = "",
    table: LiveTable | None = None,
) -> Iterator[ReportProgress]:
    """Show progress on stderr: a bar, or a line every 30 s without a terminal.

    Args:
        title: the name of the work.
        unit: what is counted.
        quiet: show nothing.
        say: a line to print when the work begins, which an error may prevent.
        table: drawn above the bar, where there is one.

    Yields:
        The function to call with (done, total, current work).
    """
    has_bar = not quiet and is_live(sys.stderr)
    # without a terminal the bar is not shown, but estimates the time that is left
    bar = _new_bar(title, unit, table)
    display = _ProgressDisplay(
        title,
        unit,
        bar,
        first_line="" if quiet else say,
        writes_lines=not (has_bar or quiet),
    )

    def report(done: int, total: int, text: str) -> None:
        # Python drops an exception that is raised in a finalizer: the person who
        # pressed Ctrl-C waits for the end all the same
        if _is_stopped:
            raise KeyboardInterrupt
        # the work goes on if nobody reads stderr any more
        with suppress(OSError):
            display.show(done, total, text)

    # A program's start is over when its first work begins: ``terminal.run`` has slowed
    # the garbage collector down for the imports.
    gc.set_threshold(*USUAL_GC_THRESHOLD)
    if not has_bar:
        yield report
        return
    with bar:
        # rich hides the cursor, and a process that is killed could not show it again
        bar.console.show_cursor(True)
        yield report


class _ProgressDisplay:
    """Shows the state of the work: on a bar, and without one in lines with pauses.

    Args:
        title: the name of the work.
        unit: what is counted.
        bar: has one task, and estimates the time that is left.
        first_line: a line to print when the work begins; empty for none.
        writes_lines: whether to write lines, because nobody sees the bar.
    """

    def __init__(
        self,
        title: str,
        unit: str,
        bar: "Progress",
        *,
        first_line: str,
        writes_lines: bool,
    ) -> None:
        self._title = title
        self._unit = unit
        self._bar = bar
        self._task = bar.tasks[0]
        self._first_line = first_line
        self._writes_lines = writes_lines
        self._last_line_time = time.monotonic()

    def show(self, done: int, total: int, text: str) -> None:
        """Show the state of the work; ``text`` says what is going on."""
        if self._first_line:
            tell(self._first_line, to=sys.stderr)
        self._first_line = ""
        self._update_bar(done, total, text)
        # the bar shows itself; lines come with pauses
        is_line_due = time.monotonic() - self._last_line_time >= LINE_SECONDS
        if self._writes_lines and is_line_due:
            self._last_line_time = time.monotonic()
            self._write_line(done, total, text)

    def _update_bar(self, done: int, total: int, text: str) -> None:
        """Move the bar to the state of the work."""
        # a new total begins a new phase, whose speed must be measured anew; the bar
        # has None in place of UNKNOWN_TOTAL
        bar_total = None if total == UNKNOWN_TOTAL else total
        if bar_total != self._task.total:
            self._bar.reset(self._task.id)
            self._task.total = bar_total
        self._bar.update(self._task.id, completed=done, description=visible(text))

    def _write_line(self, done: int, total: int, text: str) -> None:
        """Write the state of the work, and the time that is left, in a line."""
        count = f"{done:,} {self._unit}"
        if total != UNKNOWN_TOTAL:
            count = f"{done:,}/{total:,} {self._unit}"
        seconds = self._task.time_remaining
        # work that is not counted may follow the last of what is counted
        time_left = f", {duration(seconds)} left" if seconds else ""
        tell(f"{self._title} {count}{time_left}; {text}", to=sys.stderr)


def _new_bar(title: str, unit: str, table: LiveTable | None) -> "Progress":
    """A bar on stderr with one task, whose total is not known yet; below a table."""
    from rich import console, progress

    class Bar(progress.Progress):
        def get_renderables(self) -> Iterator[Any]:
            if table is not None:
                yield table
            yield from super().get_renderables()

    class OneAtATime(console.Console):
        """Lets a thread draw only while no other one does.

        To print a line above the bar, rich moves up by the height of the bar. If the
        other thread drew a bar of another height meanwhile, a line would be lost.
        """

        def __enter__(self) -> "OneAtATime":
            bar.live._lock.acquire()
            super().__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            try:
                super().__exit__(*error)
            finally:
                bar.live._lock.release()

    # a table says itself what is going on
    texts = [progress.TextColumn("{task.description:.36}", markup=False)]
    # lines on a terminal's stdout must go above the bar; a file has no bar to avoid
    redirects_stdout = bool(sys.stdout and sys.stdout.isatty())
    # the speed is measured over the last hour, because batches differ in their speed
    bar = Bar(
        title,
        progress.BarColumn(16),
        progress.MofNCompleteColumn(),
        unit,
        progress.TimeRemainingColumn(),
        *(texts if table is None else ()),
        console=OneAtATime(stderr=True),
        transient=True,
        # drawing 60 rows takes 10 ms
        refresh_per_second=10 if table is None else 4,
        redirect_stdout=redirects_stdout,
        speed_estimate_period=3600,
    )
    bar.add_task("", total=None)
    return bar


@contextmanager
def warnings_to(say: Callable[[str, type[GaamWarning]], None]) -> Iterator[None]:
    """Pass every warning of gaam inside the block to ``say``: its text and its class.

    Warnings of other libraries are shown as usual.
    """
    with warnings.catch_warnings():
        show_as_usual = warnings.showwarning

        def show(
            message: Any, category: type[Warning], *position: Any, **options: Any
        ) -> None:
            if issubclass(category, GaamWarning):
                say(str(message), category)
            else:
                show_as_usual(message, category, *position, **options)

        warnings.showwarning = show
        # Python shows a warning once for each line of code: ours differ by their text
        warnings.simplefilter("always", GaamWarning)
        yield


def unwind_on_signals() -> None:
    """Raise KeyboardInterrupt at the first signal; a second one ends the process."""
    global _is_stopped  # noqa: PLW0603 signals are of the whole process
    _is_stopped = False
    _on_signals(_stop)


def _on_signals(handler: Any) -> None:
    """Set what happens at each of ``SIGNALS``: a function, or ``signal.SIG_DFL``."""
    for number in SIGNALS:
        # nohup and the '&' of a script have the signal ignored, and so it stays
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt; from now on a signal ends the process at once."""
    global _is_stopped  # noqa: PLW0603 signals are of the whole process
    _is_stopped = True
    _on_signals(signal.SIG_DFL)
    raise KeyboardInterrupt


def run(app: Callable[..., Any], settings: Mapping[str, type]) -> NoReturn:
    """Run a command line and exit; every error becomes one message and an exit code.

    Args:
        app: the commands, as typer has them.
        settings: name of a command -> the class of its configuration, for the commands
            that have one.
    """
    unwind_on_signals()
    # imports make many objects that stay: the collector need not look at them yet
    gc.set_threshold(2**20)
    for stream in (sys.stdout, sys.stderr):
        # characters that the terminal lacks are printed as escapes; a stream may be
        # closed, or may be an object that cannot do this
        with suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    def warn(message: str, category: type[GaamWarning]) -> None:
        label = "note" if issubclass(category, GaamNote) else "warning"
        tell(f"{label}: {' '.join(message.split())}", to=sys.stderr)

    try:
        with warnings_to(warn):
            exit_code = _run_command(app, settings)
    finally:
        _on_signals(signal.SIG_DFL)
        gc.set_threshold(*USUAL_GC_THRESHOLD)
    if exit_code == INTERRUPTED_EXIT_CODE:
        tell(INTERRUPTED_MESSAGE, to=sys.stderr)
    sys.exit(exit_code)


def _run_command(app: Callable[..., Any], settings: Mapping[str, type]) -> int:
    """Run the command that the command line names, and return its exit code.

    The error of a command is printed; a bug of ours is raised.

    Args:
        app: the commands, as typer has them.
        settings: name of a command -> the class of its configuration.
    """
    from typer.exceptions import TyperException

    try:
        # only for its error: without a working folder a library would end the process
        absolute_path(".")
        show_log_lines()
        exit_code = int(app(standalone_mode=False) or 0)
        sys.stdout.flush()
        return exit_code
    except SystemExit as stop:
        # Typer exits when nobody reads the output any more, as in 'gaam runs | head':
        # this is no failure. The context is the error that Typer was handling.
        if isinstance(stop.__context__, BrokenPipeError):
            return 0
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    except TyperException as error:
        refusal = _usage_error(error, settings)
    except Exception as error:
        number = getattr(error, "errno", None)
        # a closed pipe or a full disk takes no more output, also not at exit
        if number in (errno.EPIPE, errno.ENOSPC):
            _discard_stdout()
        if number == errno.EPIPE:
            return 0
        known_error = error_for_user(error)
        # a bug of ours needs its traceback
        if known_error is None:
            raise
        refusal = known_error
    tell(f"error: {refusal}", to=sys.stderr)
    return refusal.exit_code


def _discard_stdout() -> None:
    """Throw away what is still to be printed, with which Python would fail at exit."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_error(error: Any, settings: Mapping[str, type]) -> GaamError:
    """Turn an error of the command line parser into an error of ours, with a hint.

    Args:
        error: the error of typer.
        settings: name of a command -> the class of its configuration.
    """
    # Such as 'No such option: --seed (Possible options: --seeds)'. Our suggestions
    # replace those of the parser.
    message = error.format_message().partition(" (Possible options")[0].rstrip(".")
    message = message[:1].lower() + message[1:]

    # the options and the keys of --set that the command has
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
    suggestions = _suggested_options(error, name, options, message)
    if suggestions:
        hint = f"did you mean '{suggestions[0]}'?"
    # the word may be the name of a setting that has no option: a key of --set
    if name in keys or not suggestions:
        key = nearest(name, keys)
        if key:
            hint = f"did you mean '--set {key}=VALUE'?"
    return ConfigError(message, hint=hint)


def _suggested_options(
    error: Any, name: str, options: set[str], message: str
) -> list[str]:
    """Options that a person may have meant, the likeliest first.

    Args:
        error: the error of typer.
        name: of an option that the command does not have; empty for another error.
        options: of the command.
        message: of the error.
    """
    # the parser also suggests names that are hardly like it
    suggestions = [
        option
        for option in getattr(error, "possibilities", None) or ()
        if nearest(name, [option.lstrip("-")])
    ]
    alias = OPTION_ALIASES.get(name)
    if alias in options:
        suggestions.insert(0, alias)
    # a word without an option is probably what the command reads
    unexpected = UNEXPECTED_WORD.match(message)
    inputs = [option for option in ("--dataset", "--cache") if option in options]
    if unexpected and inputs:
        suggestions.append(f"{inputs[0]} {unexpected[1]}")
    return suggestions


def entry() -> None:
    """Run the command ``gaam``, whose code is a file beside or in this package.

    A checkout has it as ``cli.py``, an installed package as ``_cli.py``.
    """
    package = Path(__file__).parents[1]
    file = package / "_cli.py"
    if not file.exists():
        file = package.parent / "cli.py"
    spec: Any = importlib.util.spec_from_file_location("gaam_cli", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
