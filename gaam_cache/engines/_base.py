"""What an engine is: it starts workers and passes on what they say."""

from __future__ import annotations

import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import devices, plugins, terminal
from gaam_cache.config import ENGINES, Placing
from gaam_cache.errors import GaamError, GaamWarning

Tell = Callable[[str, Any], None]
"""Called by a worker with what it is about and a value; both are small."""
Hear = Callable[[int, str, Any], None]
"""The other end: called with the number of the worker too; and with ("died", why)."""


class Place(NamedTuple):
    """Where a worker works."""

    number: int  # from 0
    total: int  # workers that were started together
    device: str  # as ``--device`` has it
    here: int  # workers of this machine, as far as is known


class Task(NamedTuple):
    """What every worker is to do until nothing is left to do."""

    work: Callable[[Any, Place, Tell], Any]
    """A function of a module: it is called by name in another process."""
    argument: Any  # without tensors
    folder: Path  # that all workers must see
    device: str  # as configured
    needs: tuple[Path, ...] = ()  # what else they must see


class Engine(ABC):
    """Runs a task in workers."""

    @abstractmethod
    def check(self, device: str, placing: Placing) -> None:
        """Refuse what cannot be had, before anything is read.

        Raises:
            ConfigError: there are no such devices, or what the engine needs is not installed.
        """

    @abstractmethod
    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        """Start workers and wait until all have returned; what they returned.

        Where a worker dies the others go on, and make what it had at work. ``hear`` is told, in
        this process, what workers say.

        Raises:
            GaamError: whatever a worker raised, which ends all of them; or all of them died.
        """


def load_engine(placing: Placing) -> Engine:
    """The engine that was asked for; ConfigError where there is none of that name."""
    return plugins.load(ENGINES, placing.engine, kind="engine")()


def warning_once(hear: Hear) -> Hear:
    """Who hears all but warnings, which are given here: each once, however many workers say it."""
    said: set[str] = set()

    def heard(number: int, kind: str, value: Any) -> None:
        if kind != "warning":
            hear(number, kind, value)
        elif value not in said:
            said.add(value)
            warnings.warn(value, GaamWarning, stacklevel=6)

    return heard


def warn_of_death(who: str, then: str = "the others go on") -> None:
    """Say that a worker is gone, and who does its work."""
    said = f"{who} died without a word (killed, out of memory, or a crash): {then}; "
    warnings.warn(f"{said}what it had at work is made again", GaamWarning, stacklevel=3)


def all_died(why: str) -> GaamError:
    """What to say where no worker is left."""
    hint = "fewer --devices, where memory is short; in a script, below if __name__ == '__main__'"
    return GaamError("all workers died", found=why, hint=hint)


def serve(task: Task, place: Place, tell: Tell) -> Any:
    """Do a task in a worker: what it warns of is told to whoever started it.

    Not every exception survives the way to another process: a bug becomes a RuntimeError.
    """
    devices.share_machine(place.here)
    with terminal.warnings_to(lambda said: tell("warning", said)):
        try:
            return task.work(task.argument, place, tell)
        except (GaamError, OSError, MemoryError):
            raise
        except Exception as error:
            raise RuntimeError("".join(traceback.format_exception(error)).strip()) from error
