"""Workers of a Ray cluster: an actor for each GPU, or for a group of cores.

Nothing but names and numbers goes through Ray. What is done is said by the shared folder, so that
Ray may kill, restart and move workers as it likes.
"""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gaam_cache.common import terminal
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install, shortened
from gaam_cache.config import WorkerConfig
from gaam_cache.store.files import make_folder
from gaam_cache.workers.engines.base import (
    Engine,
    OnMessage,
    Task,
    Worker,
    all_died,
    serve,
    warn_of_death,
)

MOST_RESTARTS = 10  # of one worker: on a cluster nodes come and go
LOOK_SECONDS = 0.5  # between two looks at what workers said
ANSWER_SECONDS = 10.0  # for the first node of a cluster to accept a connection
ARRIVAL_SECONDS = (
    30.0  # for the last words of a worker, whose mailbox may be on a lost node
)
OWN_CLUSTER: dict[str, Any] = {
    "include_dashboard": False,
    "object_store_memory": 80 * 2**20,
}
"""Of this machine alone: nothing of ours goes through the store, which would take a third of it."""


class Ray(Engine):
    """Actors of Ray; a cluster of this machine alone where there is no other."""

    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse what names devices of this machine, or no cluster; the library must be there."""
        _library()
        if "," in workers.devices or ":" in device:
            raise ConfigError(
                "GPUs of this machine mean nothing to a cluster",
                expected="a number for --devices, or all; cuda or cpu for --device",
                found=f"--devices {workers.devices} --device {device}",
            )
        address = _address(workers)
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if (
            host and port.isdigit()
        ):  # of auto or local Ray says so at once, of others in minutes
            try:
                socket.create_connection(
                    (host, int(port)), timeout=ANSWER_SECONDS
                ).close()
            except (OSError, OverflowError) as error:
                raise _no_cluster(address, error) from error

    def run(self, task: Task, workers: WorkerConfig, hear: OnMessage) -> list[Any]:
        """Start actors and wait until what is to do is done."""
        self.check(task.device, workers)
        ray = _library()
        make_folder(task.folder)
        needed = [
            str(path.absolute()) for path in (Path.cwd(), task.folder, *task.needs)
        ]
        with _cluster(ray, _address(workers)):
            here = ray.get_runtime_context().get_node_id()
            near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                here, soft=True
            )
            mailbox = (
                ray.remote(_Mailbox)
                .options(num_cpus=0, scheduling_strategy=near)
                .remote()
            )
            actors: list[Any] = []
            try:
                options, total, here = _room(ray, task, workers)
                actors += [
                    ray.remote(_Worker).options(**options).remote()
                    for _ in range(total)
                ]
                # the mailbox is no argument of the constructor: a restart would not find it again
                at_work = {
                    actor.work.remote(
                        task, needed, mailbox, Worker(i, total, task.device, here)
                    ): i
                    for i, actor in enumerate(actors)
                }
                return _wait(ray, at_work, mailbox, hear)
            finally:  # whatever they are writing, nothing half-written is ever published
                for actor in [*actors, mailbox]:
                    with suppress(Exception):  # it is gone, or the cluster is
                        ray.kill(actor)


def _room(
    ray: Any, task: Task, workers: WorkerConfig
) -> tuple[dict[str, Any], int, int]:
    """Options of every actor, how many of them, and how many to a node."""
    there, gpus = ray.cluster_resources(), workers.gpus_per_worker
    most_gpus = there.get("GPU", 0)
    if task.device == "cpu" or gpus is None:
        gpus = float(task.device == "cuda" or (task.device == "auto" and most_gpus > 0))
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    total, cpus = int(most_gpus / gpus) if gpus else len(nodes), 1  # which feeds a GPU
    total = max(1, total if workers.devices == "all" else int(workers.devices))
    if not gpus:  # a part of the cluster
        most = int(max((node.get("CPU", 1) for node in nodes), default=1))
        cpus = max(1, min(most, int(there.get("CPU", 1)) // total))
    options = {"num_gpus": gpus, "num_cpus": cpus, "scheduling_strategy": "SPREAD"}
    options |= {"max_restarts": MOST_RESTARTS, "max_task_retries": MOST_RESTARTS}
    return options, total, -(-total // max(1, len(nodes)))


def _wait(
    ray: Any, at_work: dict[Any, int], mailbox: Any, hear: OnMessage
) -> list[Any]:
    """Wait for all workers who began; what they returned."""
    results: list[Any] = []
    began: dict[int, str] = {}
    lost = ""

    def died(number: int, then: str) -> None:
        hear(number, "died", began.get(number, "no node"))
        warn_of_death(f"worker {number + 1} on {began.get(number, 'no node')}", then)

    while True:
        ended, _ = ray.wait(list(at_work), timeout=LOOK_SECONDS)
        said: list[tuple[int, str, Any]] = []
        with suppress(
            ray.exceptions.RayError, TimeoutError
        ):  # where its node is gone, the folder
            said = ray.get(
                mailbox.drain.remote(), timeout=60
            )  # says all the same what is done
        for number, kind, value in said:
            if kind != "began":
                hear(number, kind, value)
                continue
            if number in began:
                died(number, f"it is started again on {value}")
            began[number] = value
        for reference in ended:
            number = at_work.pop(reference)
            try:
                results.append(ray.get(reference))
            except ray.exceptions.RayActorError as error:
                lost = " ".join(str(error).split())[:300]
                died(number, "the others go on")
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
        # who never began has nothing left to do
        if results and not set(at_work.values()) & began.keys():
            return results
        if not at_work:
            raise all_died(lost)
        if not began:
            free = ray.cluster_resources()
            there = f"{free.get('GPU', 0):g} GPUs and {free.get('CPU', 0):g} CPUs"
            hear(-1, "waiting", f"no worker could begin yet: the cluster has {there}")


class _Mailbox:
    """Keeps what workers, by their numbers, say until it is asked for."""

    def __init__(self) -> None:
        self._said: list[tuple[int, str, Any]] = []

    def put(self, *said: Any) -> None:
        self._said.append(said)

    def drain(self) -> list[tuple[int, str, Any]]:
        said, self._said = self._said, []
        return said


class _Worker:
    def work(self, task: Task, needed: list[str], mailbox: Any, place: Worker) -> Any:
        """Do the task, from the beginning or, after a restart, from where the folder says."""
        import ray

        last = mailbox.put.remote(place.number, "began", socket.gethostname())
        _enter(needed)

        def tell(kind: str, value: Any) -> None:
            nonlocal last
            last = mailbox.put.remote(place.number, kind, value)

        try:
            return serve(task, place, tell)
        finally:  # what is said last arrives before the result: messages of one are in order
            ray.wait([last], timeout=ARRIVAL_SECONDS)


def _enter(needed: list[str]) -> None:
    """Go to the first, and refuse a node that does not see all of them."""
    for path in needed:
        if not Path(path).exists():
            raise ConfigError(
                f"the node '{socket.gethostname()}' does not see the folder",
                expected="a folder that every node has under the same path",
                found=f"no {path}",
            )
    os.chdir(needed[0])


def _address(workers: WorkerConfig) -> str:
    return workers.address or os.environ.get("RAY_ADDRESS") or ""


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at '{shortened(address or 'this machine')}'",
        expected="address of a cluster that runs (ray start --head), or auto",
        found=" ".join(str(error).split())[:500],
    )


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """A connection to a cluster; one of this machine is started where none was named."""
    if ray.is_initialized():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    own = {} if address else OWN_CLUSTER
    try:
        ray.init(
            address or None, log_to_driver=False, logging_level=logging.ERROR, **own
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster(address, error) from error
    finally:
        with suppress(ValueError):  # not in the main thread
            for number, handler in handlers.items():
                signal.signal(number, handler)
    # of workers that die Ray tells on stdout, which is for results, and no option says otherwise
    inside, name = ray._private.worker, "print_to_stdstream"
    prints = getattr(inside, name, None)
    try:
        setattr(inside, name, lambda *said, **how: None)
        yield
    finally:
        setattr(inside, name, prints)
        ray.shutdown()


def _library() -> Any:
    """The library, without its telemetry."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ConfigError(
            "--engine ray needs Ray",
            expected="ray >= 2.56 here and on every node",
            found=str(error),
            hint=install("ray"),
        ) from error
    return ray
