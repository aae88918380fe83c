"""Workers of this machine: a process for each GPU, or for each group of cores."""

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from gaam_cache.common import devices, terminal
from gaam_cache.common.devices import cores as _cores
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import WorkerConfig
from gaam_cache.workers.engines.base import (
    Engine,
    OnMessage,
    Task,
    Worker,
    all_died,
    serve,
    warn_of_death,
)

NODES = Path("/sys/devices/system/node")
UNWINDING_SECONDS = 5.0
"""For what is at work when whoever started us is no more: as long as a large shard is written."""


class Local(Engine):
    """Processes: of one that dies no other does, and these make what it had at work."""

    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse devices that are not there."""
        local_places(device, workers.devices)

    def run(self, task: Task, workers: WorkerConfig, hear: OnMessage) -> list[Any]:
        """Start a process per place and wait for all of them."""
        places, cores = local_places(task.device, workers.devices), _cores()
        context, count = (
            get_context("spawn"),
            len(places),
        )  # CUDA does not survive a fork
        running: dict[Connection, tuple[Worker, Any]] = {}
        results: list[Any] = []
        try:
            for place in places:
                share = slice(
                    *(n * len(cores) // count for n in (place.number, place.number + 1))
                )
                ear, mouth = context.Pipe(duplex=False)
                process = context.Process(
                    target=_work, args=(task, place, cores[share], mouth)
                )
                # a terminal's Ctrl-C is for us, who tell the worker: it never gets a SIGINT
                before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    process.start()
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                mouth.close()
                running[ear] = place, process
            while running:
                ready = wait(list(running), timeout=0.2)
                for ear in [one for one in running if one in ready]:
                    place, process = running[ear]
                    try:
                        kind, value = ear.recv()
                    except (EOFError, OSError):  # it ended without a last word
                        kind, value = (
                            "died",
                            f"worker {place.number + 1} ({place.device})",
                        )
                    if kind == "error":
                        raise value
                    if kind in ("result", "died"):
                        del running[ear]
                        process.join()
                    if kind == "result":
                        results.append(value)
                    else:
                        hear(place.number, kind, value)
                    if kind == "died" and (running or results):
                        warn_of_death(value)
        finally:
            for _, process in running.values():
                process.terminate()  # what it is writing is finished
            for _, process in running.values():
                process.join()
        if not results:
            raise all_died("killed, or a crash")
        return results


def _work(task: Task, place: Worker, cores: list[int], mouth: Connection) -> None:
    """What runs in a worker, before anything large is imported: its cores, its end, its task."""
    threads = str(max(1, len(cores)))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, threads)
    if place.device == "cpu" and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # a sandbox
            os.sched_setaffinity(0, cores)
    terminal.unwind_on_signals()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    speaking = threading.Lock()

    def tell(kind: str, value: Any) -> None:
        with suppress(OSError), speaking:  # nobody listens any more; threads warn, too
            mouth.send((kind, value))

    try:
        tell("result", serve(task, place, tell))
    except KeyboardInterrupt:
        os._exit(terminal.EXIT_CODE)
    except Exception as error:  # noqa: BLE001 raised by whoever started us
        tell("error", error)


def _end_with_parent() -> None:
    """Unwind when whoever started us is gone; end where a long computation does not look."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(UNWINDING_SECONDS)
        os._exit(terminal.EXIT_CODE)


def local_places(device: str, asked: str) -> list[Worker]:
    """A place for every worker, as ``--device`` and ``--devices`` ask for it."""
    import torch

    first, listed = devices.resolve_device(device), "," in asked
    if ":" in device or first.type not in ("cpu", "cuda"):
        expected = "--device cuda or cpu beside --devices"
        raise ConfigError(f"--device {device} is one device", expected=expected)
    gpu = first.type == "cuda"
    there = torch.cuda.device_count() if gpu else len(_cores())
    if listed:
        numbers = [int(number) for number in asked.split(",") if number]
    elif asked != "all":
        numbers = list(range(int(asked)))
    else:  # of a CPU the parts that have a memory of their own: threads do not pay across them
        nodes = max(1, min(len(list(NODES.glob("node[0-9]*"))), there))
        numbers = list(range(there if gpu else nodes))
    if max(numbers) >= there or (listed and not gpu):
        expected = f"at most {there} {'GPUs' if gpu else 'cores of a CPU'}"
        raise ConfigError(f"--devices {asked} is more than there is", expected=expected)
    names = [f"cuda:{number}" if gpu else "cpu" for number in numbers]
    return [Worker(i, len(names), name, len(names)) for i, name in enumerate(names)]
