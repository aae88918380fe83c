"""What an engine is: it starts workers and passes on what they say; and who others started."""

import os
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.common import devices, plugins, terminal
from gaam_cache.common.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.common.messages import shortened
from gaam_cache.config import ENGINES, WorkerConfig, parse_rank

Send = Callable[[str, Any], None]
"""Called by a worker with what it is about and a value; both are small."""
OnMessage = Callable[[int, str, Any], None]
"""The other end: called with the number of the worker too; and with ("died", why)."""


class Worker(NamedTuple):
    """Where a worker works."""

    number: int  # from 0
    total: int  # workers that were started together
    device: str  # as ``--device`` has it
    workers_on_machine: int  # workers of this machine, as far as is known


class Task(NamedTuple):
    """What every worker is to do until nothing is left to do."""

    work: Callable[[Any, Worker, Send], Any]
    """A function of a module: it is called by name in another process."""
    argument: Any  # without tensors
    folder: Path  # that all workers must see
    device: str  # as configured
    needs: tuple[Path, ...] = ()  # what else they must see


class Engine(ABC):
    """Runs a task in workers."""

    @abstractmethod
    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse what cannot be had, before anything is read.

        Raises:
            ConfigError: there are no such devices, or what the engine needs is not installed.
        """

    @abstractmethod
    def run(self, task: Task, workers: WorkerConfig, hear: OnMessage) -> list[Any]:
        """Start workers and wait until all have returned; what they returned.

        Where a worker dies the others go on, and make what it had at work. ``hear`` is told, in
        this process, what workers say.

        Raises:
            GaamError: whatever a worker raised, which ends all of them; or all of them died.
        """


def load_engine(workers: WorkerConfig) -> Engine:
    """The engine that was asked for; ConfigError where there is none of that name."""
    return plugins.load(ENGINES, workers.engine, kind="engine")()


def warning_once(hear: OnMessage) -> OnMessage:
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


def serve(task: Task, place: Worker, tell: Send) -> Any:
    """Do a task in a worker: what it warns of is told to whoever started it.

    Not every exception survives the way to another process: a bug becomes a RuntimeError.
    """
    devices.share_machine(place.workers_on_machine)
    with terminal.warnings_to(lambda said: tell("warning", said)):
        try:
            return task.work(task.argument, place, tell)
        except (GaamError, OSError, MemoryError):
            raise
        except Exception as error:
            raise RuntimeError(
                "".join(traceback.format_exception(error)).strip()
            ) from error


class Rank(NamedTuple):
    """One of several workers that somebody else started, as their environment says.

    Nothing is divided by rank. A rank says where in the work to begin, so that few want the same,
    which of a machine's GPUs to use, and that nobody waits for this one: whatever it says, all work
    is done once by whoever comes first.
    """

    number: int
    total: int
    local: int | None = None  # number among those of this machine
    workers_on_machine: int = 1  # workers of this machine, as far as is known

    @property
    def start(self) -> float:
        """Where in the work to begin, in [0, 1)."""
        return self.number / self.total


def find_rank(
    asked: str | None, environ: Mapping[str, str] = os.environ
) -> Rank | None:
    """The rank of this process; None where it is not one of several.

    In this order: the setting ``rank``, torchrun (``RANK`` and ``WORLD_SIZE``), tasks of a SLURM
    step, tasks of a SLURM array; an array of jobs of several tasks counts all tasks.
    """
    if asked is not None:
        return Rank(*parse_rank(asked))

    def number(name: str) -> int | None:
        text = environ.get(name, "").strip()
        return (
            int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        )

    def rank_of(place: str, count: str) -> Rank | None:
        if not environ.get(place, "").strip() or not environ.get(count, "").strip():
            return None
        found, total = number(place), number(count)
        if found is None or total is None or not found < total:
            raise ConfigError(
                "the environment names a rank that there cannot be",
                found=shortened(f"{place}={environ[place]} {count}={environ[count]}"),
                hint=f"unset {place} {count}, if they are not meant for gaam",
            )
        return Rank(found, total) if total > 1 else None

    if rank := rank_of("RANK", "WORLD_SIZE"):
        return rank._replace(
            local=number("LOCAL_RANK"),
            workers_on_machine=number("LOCAL_WORLD_SIZE") or 1,
        )
    step = array = None
    if "SLURM_STEP_ID" in environ:  # a batch script is no step, whatever it asked for
        step = rank_of("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    task, count = number("SLURM_ARRAY_TASK_ID"), number("SLURM_ARRAY_TASK_COUNT") or 1
    if task is not None and count > 1:
        array = Rank(task % count, count)  # where to begin is all that this decides
    if step:  # '4' or '4(x2)', or '2,1' where nodes differ
        here = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split(",")[0].split("(")[0]
        first = int(here) if here.isdigit() else 1
        step = step._replace(local=number("SLURM_LOCALID"), workers_on_machine=first)
    if step and array:
        place = array.number * step.total + step.number
        return step._replace(number=place, total=array.total * step.total)
    return step or array


def device_of(rank: Rank, asked: str) -> str:
    """The device of a rank: where a machine shows all its GPUs to all its ranks, each takes one."""
    if rank.local is None or asked not in ("auto", "cuda"):
        return asked
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{rank.local % count}" if count > 1 else asked
