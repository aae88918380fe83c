"""The interface of an engine, and what all engines share.

An engine starts workers, waits for them and passes on their messages. One file of this
folder is one engine.
"""

import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.common import devices, plugins, terminal
from gaam_cache.common.errors import GaamError, GaamWarning
from gaam_cache.common.log import show_log_lines
from gaam_cache.config import ENGINES, WorkerConfig

Send = Callable[[str, Any], None]
"""Sends a message of a worker: (kind, value), both small."""
OnMessage = Callable[[int, str, Any], None]
"""Receives the messages of all workers: (number of the worker, kind, value).

When a worker dies, the engine itself sends a message of kind "died", whose value
describes the worker.
"""
CALLER_OF_GAAM = 6
"""Level of the call that started gaam, counted up from the receiver of a message.

1 is the receiver itself. An engine's loop and its ``run`` follow, then the step that
starts the engine, and 5 is the public function of gaam, such as ``extract``.
"""


class Worker(NamedTuple):
    """One of the workers that an engine starts, and the device that it uses."""

    number: int  # from 0
    total: int  # number of all workers that the engine starts
    device: str  # as ``--device`` names it
    workers_on_machine: int  # number of workers on its machine, as far as is known


class Task(NamedTuple):
    """What every worker does until nothing is left to do."""

    work: Callable[[Any, Worker, Send], Any]
    """Does the work and returns a result; its first argument is ``argument``. It must
    be a function of a module: another process looks it up by its name."""
    argument: Any  # what the work needs to know; it may hold no tensors
    folder: Path  # the shared folder, which every worker must see
    device: str  # as ``--device`` names it
    other_paths: tuple[Path, ...] = ()  # other paths that every worker must see


class Engine(ABC):
    """Runs a task in workers."""

    @abstractmethod
    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse a configuration that cannot run, before any row is read.

        Args:
            device: as ``--device`` names it.
            workers: how many workers, and where.

        Raises:
            ConfigError: the devices do not exist, or the engine's library is missing.
        """

    @abstractmethod
    def run(
        self, task: Task, workers: WorkerConfig, on_message: OnMessage
    ) -> list[Any]:
        """Start workers, wait until all have returned, and return their results.

        When a worker dies, the other workers go on and do its unfinished work. So there
        may be fewer results than workers, and their order means nothing.

        Args:
            task: what every worker does.
            workers: how many workers, and where.
            on_message: called in this process with every message of a worker.

        Raises:
            GaamError: all workers died; or a worker raised this error, which ends all.
        """


def load_engine(workers: WorkerConfig) -> Engine:
    """Load the configured engine; ConfigError if no engine has the name."""
    engine_class: type[Engine] = plugins.load(ENGINES, workers.engine, kind="engine")
    return engine_class()


def showing_each_warning_once(on_message: OnMessage) -> OnMessage:
    """Make a receiver of messages that shows each warning once for all workers.

    It passes on all other messages to ``on_message``.
    """
    shown_warnings: set[str] = set()

    def show_or_pass_on(worker_number: int, kind: str, value: Any) -> None:
        if kind != "warning":
            on_message(worker_number, kind, value)
        elif value not in shown_warnings:
            shown_warnings.add(value)
            # Python shows the line of this level, which should be one of the user
            warnings.warn(value, GaamWarning, stacklevel=CALLER_OF_GAAM)

    return show_or_pass_on


def warn_of_death(worker: str, consequence: str = "the others go on") -> None:
    """Warn that a worker died.

    Args:
        worker: the worker in words, as the subject of the message.
        consequence: how the work goes on, as a sentence without its full stop.
    """
    message = (
        f"{worker} died without a message (killed, out of memory, or a crash): "
        f"{consequence}; its unfinished work is done again"
    )
    warnings.warn(message, GaamWarning, stacklevel=3)


def all_died_error(reason: str) -> GaamError:
    """Build the error for an engine whose workers have all died.

    ``reason`` says why they died, as far as the engine knows.
    """
    # Every process that a script starts runs the script's own lines again, except those
    # below ``if __name__ == '__main__'``. Workers would start workers.
    hint = (
        "fewer --devices, where memory is short; "
        "in a script, below if __name__ == '__main__'"
    )
    return GaamError("all workers died", found=reason, hint=hint)


def do_task(task: Task, worker: Worker, send: Send) -> Any:
    """Do a task in the process of a worker; warnings become messages.

    Many exceptions of libraries cannot be sent to another process. So an error that
    gaam did not raise on purpose becomes a RuntimeError with its traceback as text.

    Args:
        task: what to do.
        worker: which worker this process is.
        send: sends the messages of this worker.

    Returns:
        The result of the work.
    """
    show_log_lines()
    devices.set_workers_here(worker.workers_on_machine)
    with terminal.warnings_to(lambda message, category: send("warning", message)):
        try:
            return task.work(task.argument, worker, send)
        except (GaamError, OSError, MemoryError):
            raise
        except Exception as error:
            description = "".join(traceback.format_exception(error)).strip()
            raise RuntimeError(description) from error
