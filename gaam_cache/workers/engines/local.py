"""Workers of this machine: one process for each GPU, or for each group of cores."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.common import devices, terminal
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import WorkerConfig
from gaam_cache.workers.engines.base import (
    Engine,
    OnMessage,
    Task,
    Worker,
    all_died_error,
    do_task,
    warn_of_death,
)

MEMORY_NODES = Path("/sys/devices/system/node")
"""Linux has a folder ``node0``, ``node1``, ... here for each part of memory with its
own cores."""
POLL_SECONDS = 0.2  # longest wait for a message
UNWINDING_SECONDS = 5.0
"""How long a worker may go on after its parent has died. A large shard is written in
this time."""


class _Running(NamedTuple):
    """A worker whose process runs."""

    worker: Worker
    process: BaseProcess


class Local(Engine):
    """Runs workers as processes; when one dies the others do its unfinished work."""

    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse devices that this machine does not have."""
        # choosing the workers refuses such devices; the workers are not needed yet
        local_workers(device, workers.devices)

    def run(
        self, task: Task, workers: WorkerConfig, on_message: OnMessage
    ) -> list[Any]:
        """Start a process for each worker and wait for all of them.

        If anything fails, all processes are ended before the error leaves.
        """
        planned_workers = local_workers(task.device, workers.devices)
        core_shares = _share_cores(len(planned_workers))
        running: dict[Connection, _Running] = {}
        try:
            for worker, cores in zip(planned_workers, core_shares, strict=True):
                receiver, process = _start(task, worker, cores)
                running[receiver] = _Running(worker, process)
            results = _wait_for_all(running, on_message)
        finally:
            # a worker that is writing a shard finishes it before it ends
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.join()
        if not results:
            raise all_died_error("killed, or a crash")
        return results


def _share_cores(num_workers: int) -> list[list[int]]:
    """Divide the cores of this process among workers, as evenly as possible.

    Returns:
        The numbers of the cores of each worker. If there are more workers than cores,
        some get none.
    """
    cores = devices.cores()
    shares = []
    for worker_number in range(num_workers):
        start = worker_number * len(cores) // num_workers
        stop = (worker_number + 1) * len(cores) // num_workers
        shares.append(cores[start:stop])
    return shares


def _start(
    task: Task, worker: Worker, cores: list[int]
) -> tuple[Connection, BaseProcess]:
    """Start the process of a worker.

    Args:
        task: what to do.
        worker: which worker the process is.
        cores: numbers of the cores that it may use.

    Returns:
        The connection that receives the worker's messages; and its process.
    """
    # CUDA does not survive a fork
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, worker, cores, sender))

    # Ctrl-C in a terminal sends SIGINT to all processes there. It is for this process,
    # which then ends its workers; they must not receive it. A new process blocks the
    # signals that its parent blocks, so SIGINT is blocked while the worker starts.
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
    # The worker has a copy of the sender. While ours is open, the end of the worker
    # would not close the connection, and nobody would notice that it died.
    sender.close()
    return receiver, process


def _wait_for_all(
    running: dict[Connection, _Running], on_message: OnMessage
) -> list[Any]:
    """Pass on messages until every worker has ended; return their results.

    Workers that end are removed from ``running``, so that the caller sees which workers
    it has to end after an error. The error of a worker is raised here. A worker that
    died has no result.

    Args:
        running: the workers, by the connection that receives their messages. It is
            empty in the end.
        on_message: receives the messages.
    """
    results: list[Any] = []
    while running:
        ready = wait(list(running), timeout=POLL_SECONDS)
        # Workers are served in the order in which they were started. The list is made
        # before the loop, since the loop removes workers.
        ready_in_order = [receiver for receiver in running if receiver in ready]
        for receiver in ready_in_order:
            worker, process = running[receiver]
            kind, value = _receive(receiver, worker)
            if kind == "error":
                raise value
            # a result is the last message of a worker, and so is its death
            if kind in ("result", "died"):
                del running[receiver]
                process.join()
            if kind == "result":
                results.append(value)
                continue
            on_message(worker.number, kind, value)
            # If all workers have died, an error says so instead of this warning. A
            # worker with a result has not died.
            has_survivor = len(running) > 0 or len(results) > 0
            if kind == "died" and has_survivor:
                warn_of_death(value)
    return results


def _receive(receiver: Connection, worker: Worker) -> tuple[str, Any]:
    """The next message of a worker: (kind, value).

    If the worker ended without a result, the kind is "died" and the value describes the
    worker in words.
    """
    # the system closes the connection of a process that ends
    try:
        kind, value = receiver.recv()
    except (EOFError, OSError):
        return "died", f"worker {worker.number + 1} ({worker.device})"
    return kind, value


def _work(task: Task, worker: Worker, cores: list[int], sender: Connection) -> None:
    """Run in the process of a worker: take its cores, watch its parent, do its task.

    Args:
        task: what to do.
        worker: which worker this is.
        cores: numbers of the cores that it may use.
        sender: takes its messages, the last of which is its result or error.
    """
    # The libraries read these variables when the task imports them. A value that the
    # user has set stays.
    num_threads = str(max(1, len(cores)))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, num_threads)
    if worker.device == "cpu" and hasattr(os, "sched_setaffinity"):
        # a sandbox may forbid to choose cores
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    terminal.unwind_on_signals()
    threading.Thread(target=_end_with_parent, daemon=True).start()

    send = _make_send(sender)
    try:
        send("result", do_task(task, worker, send))
    # A signal to end becomes this exception. Ending at once prints no traceback.
    except KeyboardInterrupt:
        os._exit(terminal.INTERRUPTED_EXIT_CODE)
    except Exception as error:  # noqa: BLE001 the parent raises it
        send("error", error)


def _make_send(connection: Connection) -> Callable[[str, Any], None]:
    """Make the function that sends messages (kind, value); it is safe in threads."""
    lock = threading.Lock()

    def send(kind: str, value: object) -> None:
        # a parent that has died receives nothing
        with suppress(OSError), lock:
            connection.send((kind, value))

    return send


def _end_with_parent() -> None:
    """Wait until the parent process ends, and then end this process.

    This runs in a thread. A signal first lets the process finish what it is writing. A
    long computation does not notice signals; the exit that follows ends it.
    """
    # a process that was started in another way has no parent to watch
    parent = parent_process()
    if parent is None:
        return
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(UNWINDING_SECONDS)
    os._exit(terminal.INTERRUPTED_EXIT_CODE)


def local_workers(device: str, requested: str) -> list[Worker]:
    """Choose the workers of this machine, and the device of each.

    Args:
        device: the value of ``--device``.
        requested: the value of ``--devices``: a number, numbers with commas, or all.

    Raises:
        ConfigError: this machine does not have these devices.
    """
    import torch

    # "cuda:1" is a single device, and a machine has one "mps" at most: several workers
    # make no sense there.
    device_type = devices.resolve_device(device).type
    if ":" in device or device_type not in ("cpu", "cuda"):
        raise ConfigError(
            f"--device {device} is one device",
            expected="--device cuda or cpu beside --devices",
        )

    on_gpus = device_type == "cuda"
    available = torch.cuda.device_count() if on_gpus else len(devices.cores())
    numbers = _requested_numbers(requested, available, on_gpus=on_gpus)
    # --devices may list the numbers of GPUs. For a CPU it must be a count of workers.
    lists_cores = "," in requested and not on_gpus
    if max(numbers) >= available or lists_cores:
        unit = "GPUs" if on_gpus else "cores of a CPU"
        raise ConfigError(
            f"--devices {requested} is more than there is",
            expected=f"at most {available} {unit}",
        )

    num_workers = len(numbers)
    workers = []
    for worker_number, device_number in enumerate(numbers):
        device_name = f"cuda:{device_number}" if on_gpus else "cpu"
        worker = Worker(
            worker_number, num_workers, device_name, workers_on_machine=num_workers
        )
        workers.append(worker)
    return workers


def _requested_numbers(requested: str, available: int, *, on_gpus: bool) -> list[int]:
    """Numbers of the devices that ``--devices`` requests.

    The caller checks whether these devices exist. On a CPU there is a number for each
    worker.

    Args:
        requested: the value of ``--devices``: a number, numbers with commas, or all.
        available: number of the GPUs or cores of this machine.
        on_gpus: whether the devices are GPUs.
    """
    if "," in requested:
        return [int(number) for number in requested.split(",") if number]
    if requested != "all":
        return list(range(int(requested)))
    if on_gpus:
        return list(range(available))
    # One worker for each part of memory that has its own cores: threads of one worker
    # would be slow across two parts.
    num_nodes = len(list(MEMORY_NODES.glob("node[0-9]*")))
    return list(range(max(1, min(num_nodes, available))))
