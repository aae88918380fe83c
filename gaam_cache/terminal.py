"""What the command line needs beside its commands: progress, signals, refusals, the entry point."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gaam_cache.devices import out_of_memory
from gaam_cache.errors import ConfigError, GaamError, GaamWarning, ShortOfMemoryError, StorageError
from gaam_cache.messages import duration, nearest, tell, visible

T = TypeVar("T")
Report = Callable[[int, int, str], None]
"""Called with (done, total, what is going on); a total of 0 is one that is not known yet."""
LINE_SECONDS = 30.0
EXIT_CODE = 130
MESSAGE = "interrupted; finished shards and seeds are kept: run the same again"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal that is closed sends the last; what is finished is kept then too."""
WRITER = "write"
"""How the name of a thread begins that writes what is to be kept."""
_asked = False
_says = True


def silent(done: int, total: int, text: str) -> None:
    """Report nothing."""


def counting(items: Iterable[T], report: Report, text: str, *, every: int = 2048) -> Iterator[T]:
    """The items, while it is reported how many there were so far."""
    report(0, 0, text)
    for count, item in enumerate(items):
        if count % every == every - 1:
            report(count + 1, 0, text)
        yield item


class Progress:
    """A ``Report``, and lines that stay."""

    def __init__(self, update: Report, line: Callable[[str], None]) -> None:
        self._update, self._line = update, line

    def __call__(self, done: int, total: int, text: str) -> None:
        """Show how far the work is.

        Raises:
            KeyboardInterrupt: a signal asked for it.
        """
        go_on()
        with suppress(OSError):  # nobody reads stderr any more: the work goes on
            self._update(done, total, visible(text))

    def line(self, text: str) -> None:
        """Show a line that stays."""
        with suppress(OSError):
            self._line(visible(text))


@contextmanager
def show_progress(title: str, unit: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show on stderr how far the work is: a bar on a terminal, else a line every 30 s."""
    if quiet:
        yield Progress(silent, lambda text: None)
    elif sys.stderr is None or not sys.stderr.isatty():
        yield Progress(_lines(title, unit), lambda text: tell(text, to=sys.stderr))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        text = TextColumn("{task.description}", markup=False, table_column=rest)
        columns = (title, BarColumn(16), MofNCompleteColumn(), unit, TimeRemainingColumn(), text)
        console = Console(stderr=True)
        # stdout is not ours: what a command prints there must not end up above the bar
        how: Any = {"console": console, "transient": True, "redirect_stdout": False, "expand": True}
        with Bar(*columns, **how) as bar:
            task = bar.add_task("", total=None)

            def update(done: int, total: int, text: str) -> None:
                if total != (bar.tasks[0].total or 0):  # another phase has another speed
                    bar.reset(task, total=total or None)
                bar.update(task, completed=done, description=text)

            yield Progress(update, lambda text: console.print(text, markup=False, highlight=False))


def _lines(title: str, unit: str) -> Report:
    said = began = time.monotonic()
    first, of = 0, 0

    def update(done: int, total: int, text: str) -> None:
        nonlocal said, began, first, of
        now = time.monotonic()
        if total != of or done <= first:  # what comes before the first step is not its time
            began, first, of = now, done, total
        if now - said >= LINE_SECONDS:
            said = now
            count = f"{done:,}/{total:,} {unit}" if total else f"{done:,} {unit}" * bool(done)
            if total and done > first:
                left = (now - began) * (total - done) / (done - first)
                count += f", {duration(left)} left"
            print(f"{title} {count}; {text}", file=sys.stderr, flush=True)

    return update


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


def go_on() -> None:
    """Raise KeyboardInterrupt if a signal asked for it before; called wherever work is reported.

    Python drops an exception that a signal handler raises while a destructor runs.
    """
    unwinding = sys.exc_info()[0] is not None
    if _asked and not unwinding and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call it where no KeyboardInterrupt can cut it off half-way; those reach the main thread."""
    with ThreadPoolExecutor(1, WRITER) as writer:
        return writer.submit(function, *arguments).result()


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


def _on_signals(handler: Callable[[int, Any], None]) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup or a script's '&'
            signal.signal(number, handler)


def _unwind(number: int, frame: Any) -> None:
    global _asked  # noqa: PLW0603 a signal belongs to the process
    _asked = True
    _on_signals(_end)
    raise KeyboardInterrupt


def _end(number: int, frame: Any) -> None:
    if number != signal.SIGHUP:  # a terminal that closes sends it again by way of the shell
        with suppress(OSError):  # print may be what was interrupted
            os.write(2, f"{MESSAGE}\n".encode() * _says)
        os._exit(EXIT_CODE)


def as_refusal(error: BaseException) -> GaamError | None:
    """The machine's refusal behind an exception, or None where it is a bug of ours."""
    if isinstance(error, ShortOfMemoryError):
        return error  # it says more of it than can be said here
    if (exhausted := _exhausted(error)) is not None:
        return exhausted
    if isinstance(error, GaamError) or not isinstance(error, OSError):
        return None
    return StorageError(
        "the system refused",
        found=str(error),
        hint="look at the disk, its mount and its permissions; what is finished is kept",
    )


def _exhausted(error: BaseException) -> GaamError | None:
    """What ran out, in all that led to an exception: libraries wrap what the system said."""
    cause: BaseException | None = error
    while cause is not None:
        text, number = f"{type(cause).__name__} {cause}", getattr(cause, "errno", None)
        found = " ".join(str(cause).split())[:300] or type(cause).__name__
        if isinstance(cause, GaamError):
            pass  # what we say of it is not what the system said
        elif number == errno.ENOMEM or out_of_memory(cause):
            hint = "give it more, or less to hold at once: --set batch-tokens=512 or seed-batch=1"
            return GaamError("not enough memory", found=found, hint=hint)
        elif number in (errno.EMFILE, errno.ENFILE) or re.search(
            r"(?i)too many open files|errno = 24\b|os error 24\b", text
        ):
            return StorageError("too many open files", found=found, hint="raise 'ulimit -n'")
        elif re.search("can't start new thread|Resource temporarily unavailable", text):
            hint = "raise 'ulimit -u', or set OMP_NUM_THREADS=1"
            return StorageError("no more threads or processes", found=found, hint=hint)
        cause = cause.__cause__ or cause.__context__
    return None


def write_stdout(content: bytes) -> bool:
    """Write bytes to stdout as they are; False where it takes no more, as behind ``| head``."""
    try:
        sys.stdout.flush()
        if (buffer := getattr(sys.stdout, "buffer", None)) is None:
            sys.stdout.write(content.decode())
            return True
        buffer.write(content)
        buffer.flush()
    except BrokenPipeError:
        _discard_stdout()
        return False
    return True


def _discard_stdout() -> None:
    """What is still to be printed is not wanted, or cannot be taken."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(app: Callable[..., Any], settings: Mapping[str, type], *, says: bool = True) -> NoReturn:
    """Run a command line and exit; every error becomes one message and an exit code.

    A SIGINT, SIGTERM or SIGHUP lets the command finish what it is writing; a second one ends it.
    A traceback means a bug.
    """
    unwind_on_signals(says=says)
    try:
        code = _code(app, settings)
    finally:
        _on_signals(_end)
    sys.exit(code)


def _code(app: Callable[..., Any], settings: Mapping[str, type]) -> int:
    from typer.exceptions import TyperException

    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # closed, or another's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with warnings.catch_warnings():
            show_warnings()
            code = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except SystemExit as stop:
        pipe = isinstance(stop.__context__, BrokenPipeError)  # who reads no further wants no more
        code = 0 if pipe else int(stop.code or 0)
    except BrokenPipeError:
        _discard_stdout()
        return 0
    except KeyboardInterrupt:
        code = EXIT_CODE
    except TyperException as error:
        # without a command the help was shown, and nothing is to be said
        return _say(_usage_error(error, settings)) if error.format_message() else 2
    except Exception as error:
        # of what ran out first: a file that could not be opened for that is not a damaged file
        said = as_refusal(error) or error
        if not isinstance(said, GaamError):
            raise
        _discard_stdout() if getattr(error, "errno", None) == errno.ENOSPC else None
        return _say(said)
    if code == EXIT_CODE and _says:
        tell(MESSAGE, to=sys.stderr)
    return code


def _usage_error(error: Any, settings: Mapping[str, type]) -> GaamError:
    """What the parser cannot take, in the words that all refusals have."""
    from gaam_cache.settings import keys  # it reads the configurations' source

    said = error.format_message().partition(" (Possible")[0].partition(", unable")[0].rstrip(".")
    said = said.replace("Input should be ", "")
    hint = f"{error.ctx.command_path} --help" if error.ctx else "gaam --help"
    if error.ctx and hasattr(error, "possibilities"):  # there is no such option
        option = error.option_name
        there = [name for one in error.ctx.command.params for name in one.opts]
        config = settings.get(str(error.ctx.command.name))
        every = keys(config) if config else ()
        alone = [one["key"] for one in every if not one["option"]]
        if meant := nearest(option, [*there, *(f"--{key}" for key in alone)]):
            hint = f"did you mean '{meant}'?"
        if meant and meant[2:] in alone:
            hint = f"a setting without an option: --set {meant[2:]}=VALUE"
    return ConfigError(said[:1].lower() + said[1:], hint=hint)


def _say(error: GaamError) -> int:
    tell(f"error: {error}", to=sys.stderr)
    return error.exit_code


def entry(**options: Any) -> None:
    """The command ``gaam``: ``cli.py`` of the checkout, which lies in a wheel as ``_cli.py``."""
    file = Path(__file__).with_name("_cli.py")
    file = file if file.exists() else Path(__file__).parents[1] / "cli.py"
    spec: Any = importlib.util.spec_from_file_location("gaam_cli", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(**options)
