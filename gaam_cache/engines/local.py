"""Workers of this machine: a process for each GPU, or for each group of cores."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from gaam_cache import devices, terminal
from gaam_cache.devices import cores as _cores
from gaam_cache.engines._base import MOST_RESTARTS, Engine, Hear, Place, Task, all_died
from gaam_cache.engines._local_worker import begin, work
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.placing import Placing

LOOK_SECONDS = 0.2
"""Between two looks at workers that say nothing."""
NODES = Path("/sys/devices/system/node")


class Local(Engine):
    """Processes of the standard library's pool, one pool each: of one that dies no other does."""

    def check(self, device: str, placing: Placing) -> None:
        """Refuse devices that are not there."""
        local_places(device, placing.devices)

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        """Start a process per place and wait for all of them."""
        places = local_places(task.device, placing.devices)
        groups = _groups_of_cores(len(places))
        running = [_Worker(task, *pair) for pair in zip(places, groups, strict=True)]
        results, given_up = [], 0
        try:
            while running:
                wait([worker.ear for worker in running], LOOK_SECONDS)
                terminal.go_on()
                for worker in list(running):
                    ended = worker.future.done()  # what it said before comes first
                    for kind, value in worker.said():
                        hear(worker.place.number, kind, value)
                    if not ended:
                        continue
                    error = worker.future.exception()
                    if isinstance(error, (BrokenProcessPool, KeyboardInterrupt)):
                        # killed, or asked to end by somebody who did not ask us
                        again = worker.deaths < MOST_RESTARTS
                        hear(worker.place.number, "died", worker.name)
                        _warn_of_death(worker.name, worker.deaths, again=again)
                        if again:
                            worker.start_again()
                            continue
                        given_up += 1
                    elif error is not None:
                        raise error
                    else:
                        results.append(worker.future.result())
                    running.remove(worker)
                    worker.end()
        finally:
            for worker in running:
                worker.stop()
            for worker in running:
                worker.end()
        if not results:
            raise all_died(given_up, "killed, or a crash")
        return results


def local_places(device: str, asked: str) -> list[Place]:
    """A place for every worker.

    Args:
        device: as ``--device`` has it.
        asked: as ``--devices`` has it.

    Raises:
        ConfigError: there are no such devices.
    """
    import torch

    first = devices.resolve_device(device)
    if ":" in device or first.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"--device {device} is one device",
            expected="--device cuda or cpu beside --devices",
            found=f"--devices {asked}",
        )
    gpu = first.type == "cuda"
    there = torch.cuda.device_count() if gpu else len(_cores())
    what = f"GPU{'s' * (there != 1)}" if gpu else f"core{'s' * (there != 1)} of a CPU"
    listed = [int(number) for number in asked.split(",") if number.isdigit()]
    if asked == "all":
        numbers = list(range(there if gpu else _memory_nodes()))
    elif "," in asked:
        numbers = listed
        if not gpu:
            raise ConfigError(
                "--devices names GPUs", expected="a number of workers, on a CPU", found=asked
            )
    else:
        numbers = list(range(listed[0]))
    if max(numbers) >= there:
        raise ConfigError(
            f"--devices {asked} is more than there is",
            expected=f"at most {there} {what}" if "," not in asked else f"0 to {there - 1}",
            found=asked,
        )
    names = [f"cuda:{number}" if gpu else "cpu" for number in numbers]
    return [Place(i, len(names), name, len(names)) for i, name in enumerate(names)]


class _Worker:
    """One process, and the one after it."""

    def __init__(self, task: Task, place: Place, cores: list[int]) -> None:
        self.place = place
        self.deaths = 0
        self._task = task
        self._cores = cores
        self._start()

    @property
    def name(self) -> str:
        """For people."""
        return f"worker {self.place.number + 1} of {self.place.total} ({self.place.device})"

    def _start(self) -> None:
        context = get_context("spawn")  # CUDA does not survive a fork
        self.ear, mouth = context.Pipe(duplex=False)
        leash, self._hand = context.Pipe(duplex=False)
        own = (mouth, leash, self._cores, self.place)
        self._pool = ProcessPoolExecutor(1, context, initializer=begin, initargs=own)
        with _interrupts_blocked():  # a terminal's Ctrl-C is for us, who tell the worker
            self.future: Future[Any] = self._pool.submit(work, self._task, self.place)
        mouth.close()
        leash.close()

    def start_again(self) -> None:
        """In the place of one that died."""
        self.deaths += 1
        self.end()
        self._start()

    def said(self) -> Iterator[tuple[str, Any]]:
        """What it has said since."""
        with suppress(EOFError, OSError):
            while self.ear.poll():
                yield self.ear.recv()

    def stop(self) -> None:
        """Let it unwind: what it is writing is finished."""
        self.ear.close()
        self._hand.close()

    def end(self) -> None:
        """Wait until the process is gone."""
        self.stop()
        self._pool.shutdown(cancel_futures=True)


def _warn_of_death(name: str, deaths: int, *, again: bool) -> None:
    what = f"it is started again ({deaths + 1} of {MOST_RESTARTS})" if again else "the others go on"
    warnings.warn(
        f"{name} died without a word (killed, out of memory, or a crash): {what}; what it had at "
        "work is made again",
        GaamWarning,
        stacklevel=3,
    )


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """What is started meanwhile never gets a SIGINT; ours waits until it is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _groups_of_cores(count: int) -> list[list[int]]:
    """Cores in ``count`` groups of neighbours."""
    cores = _cores()
    return [cores[i * len(cores) // count : (i + 1) * len(cores) // count] for i in range(count)]


def _memory_nodes() -> int:
    """Parts of this machine with a memory of their own: threads do not pay across them."""
    return max(1, min(len(list(NODES.glob("node[0-9]*"))), len(_cores())))
