"""Workers of a Ray cluster: one actor for each GPU, or for a group of cores.

Only names and numbers go through Ray. The shared folder shows which work is done, so
Ray may kill, restart and move workers at any time.
"""

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

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
    all_died_error,
    do_task,
    warn_of_death,
)

MOST_RESTARTS = 10  # of one worker: on a cluster nodes come and go
LOOK_SECONDS = 0.5  # between two looks for messages
ANSWER_SECONDS = 10.0  # for the first node of a cluster to accept a connection
DRAIN_SECONDS = 60  # for the mailbox to hand over its messages
ARRIVAL_SECONDS = 30.0
"""For the last message of a worker to arrive; the mailbox may be on a lost node."""
LONGEST_ERROR = 500  # characters that are shown of an error of Ray
LONGEST_LOSS = 300  # characters that are shown of the reason why a worker died
OWN_CLUSTER: dict[str, Any] = {
    "include_dashboard": False,
    "object_store_memory": 80 * 2**20,
}
"""Settings of a cluster of this machine alone. By default the object store, which we do
not use, would take a third of the memory."""


class Ray(Engine):
    """Runs workers as actors of Ray; starts a cluster where no address is named."""

    def check(self, device: str, workers: WorkerConfig) -> None:
        """Refuse devices by number, a missing library and an unreachable cluster."""
        _library()
        if "," in workers.devices or ":" in device:
            raise ConfigError(
                "a cluster chooses its GPUs itself",
                expected="a number for --devices, or all; cuda or cpu for --device",
                found=f"--devices {workers.devices} --device {device}",
            )
        _check_answer(_address(workers))

    def run(
        self, task: Task, workers: WorkerConfig, on_message: OnMessage
    ) -> list[Any]:
        """Start actors and wait until no work is left."""
        self.check(task.device, workers)
        ray = _library()
        make_folder(task.folder)
        folders = (Path.cwd(), task.folder, *task.needs)
        needed_paths = [str(path.absolute()) for path in folders]
        with _cluster(ray, _address(workers)):
            mailbox = _start_mailbox(ray)
            actors: list[Any] = []
            try:
                layout = _layout(ray, task, workers)
                for _ in range(layout.total):
                    actor_class = ray.remote(_WorkerActor).options(**layout.options)
                    actors.append(actor_class.remote())

                # the mailbox is an argument of the method: a restarted actor would not
                # find that of its constructor again
                at_work: dict[Any, int] = {}
                for number, actor in enumerate(actors):
                    worker = Worker(
                        number, layout.total, task.device, layout.workers_on_node
                    )
                    result = actor.work.remote(task, needed_paths, mailbox, worker)
                    at_work[result] = number
                return _Supervisor(ray, at_work, mailbox, on_message).wait()
            finally:
                # nothing half-written is ever published, so killing is safe
                for actor in [*actors, mailbox]:
                    # the actor may be gone, or the cluster
                    with suppress(Exception):
                        ray.kill(actor)


class _Layout(NamedTuple):
    """How many actors to start, and with which options."""

    options: dict[str, Any]  # of every actor
    total: int
    workers_on_node: int


def _layout(ray: Any, task: Task, workers: WorkerConfig) -> _Layout:
    """Choose the number of actors and the GPUs and cores of each."""
    resources = ray.cluster_resources()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus_in_all = resources.get("GPU", 0)

    # a CPU task takes no GPU, whatever the configuration says
    gpus = workers.gpus_per_worker
    if task.device == "cpu" or gpus is None:
        has_gpus = task.device == "auto" and gpus_in_all > 0
        gpus = float(task.device == "cuda" or has_gpus)

    # without GPUs each node gets one worker
    if workers.devices != "all":
        total = int(workers.devices)
    elif gpus:
        total = int(gpus_in_all / gpus)
    else:
        total = len(nodes)
    total = max(1, total)

    # one core feeds a GPU; without GPUs a worker gets its part of the cores
    cpus = 1
    if not gpus:
        cores_of_nodes = [node.get("CPU", 1) for node in nodes]
        cores_of_largest = int(max(cores_of_nodes, default=1))
        cores_each = int(resources.get("CPU", 1)) // total
        cpus = max(1, min(cores_of_largest, cores_each))

    options = {
        "num_gpus": gpus,
        "num_cpus": cpus,
        "scheduling_strategy": "SPREAD",
        "max_restarts": MOST_RESTARTS,
        "max_task_retries": MOST_RESTARTS,
    }
    workers_on_node = -(-total // max(1, len(nodes)))
    return _Layout(options, total, workers_on_node)


def _start_mailbox(ray: Any) -> Any:
    """Start the mailbox, on this node if it has room."""
    node = ray.get_runtime_context().get_node_id()
    strategies = ray.util.scheduling_strategies
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    actor_class = ray.remote(_Mailbox)
    actor_class = actor_class.options(num_cpus=0, scheduling_strategy=strategy)
    return actor_class.remote()


class _Supervisor:
    """Waits for the actors, and passes on their messages."""

    def __init__(
        self, ray: Any, at_work: dict[Any, int], mailbox: Any, on_message: OnMessage
    ) -> None:
        self._ray = ray
        self._at_work = at_work  # result that is awaited -> number of its worker
        self._mailbox = mailbox
        self._on_message = on_message
        self._results: list[Any] = []
        self._nodes: dict[int, str] = {}  # worker that began -> name of its node
        self._loss = ""  # why the last lost worker died

    def wait(self) -> list[Any]:
        """Wait for all workers that began; their results."""
        while True:
            ended, _ = self._ray.wait(list(self._at_work), timeout=LOOK_SECONDS)
            self._pass_on_messages()
            for reference in ended:
                self._take_result(reference)

            # a worker returns when all work is done: one that has not begun by then
            # would find nothing left to do
            is_any_busy = bool(set(self._at_work.values()) & self._nodes.keys())
            if self._results and not is_any_busy:
                return self._results
            if not self._at_work:
                raise all_died_error(self._loss)
            if not self._nodes:
                self._report_waiting()

    def _pass_on_messages(self) -> None:
        messages: list[tuple[int, str, Any]] = []
        # when the mailbox's node is lost, the shared folder still shows what is done
        with suppress(self._ray.exceptions.RayError, TimeoutError):
            request = self._mailbox.drain.remote()
            messages = self._ray.get(request, timeout=DRAIN_SECONDS)
        for number, kind, value in messages:
            if kind == "began":
                self._note_start(number, value)
            else:
                self._on_message(number, kind, value)

    def _note_start(self, number: int, node: str) -> None:
        # only a worker that died begins a second time
        if number in self._nodes:
            self._report_death(number, f"it is started again on {node}")
        self._nodes[number] = node

    def _take_result(self, reference: Any) -> None:
        number = self._at_work.pop(reference)
        try:
            self._results.append(self._ray.get(reference))
        except self._ray.exceptions.RayActorError as error:
            self._loss = " ".join(str(error).split())[:LONGEST_LOSS]
            self._report_death(number, "the others go on")
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def _report_death(self, number: int, consequence: str) -> None:
        node = self._nodes.get(number, "no node")
        self._on_message(number, "died", node)
        warn_of_death(f"worker {number + 1} on {node}", consequence)

    def _report_waiting(self) -> None:
        resources = self._ray.cluster_resources()
        gpus = f"{resources.get('GPU', 0):g} GPUs"
        cpus = f"{resources.get('CPU', 0):g} CPUs"
        message = f"no worker could begin yet: the cluster has {gpus} and {cpus}"
        self._on_message(-1, "waiting", message)


class _Mailbox:
    """Keeps the messages of all workers until the supervisor fetches them."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, str, Any]] = []

    def put(self, number: int, kind: str, value: Any) -> None:
        """Add a message of a worker."""
        self._messages.append((number, kind, value))

    def drain(self) -> list[tuple[int, str, Any]]:
        """All messages since the last call."""
        messages = self._messages
        self._messages = []
        return messages


class _WorkerActor:
    """A worker in a process of Ray."""

    def work(
        self, task: Task, needed_paths: list[str], mailbox: Any, worker: Worker
    ) -> Any:
        """Do the task; after a restart, do what the shared folder lacks."""
        import ray

        last_message = mailbox.put.remote(worker.number, "began", socket.gethostname())
        _enter(needed_paths)

        def send(kind: str, value: Any) -> None:
            nonlocal last_message
            last_message = mailbox.put.remote(worker.number, kind, value)

        try:
            return do_task(task, worker, send)
        finally:
            # messages of one worker keep their order: the last one arrives last
            ray.wait([last_message], timeout=ARRIVAL_SECONDS)


def _enter(needed_paths: list[str]) -> None:
    """Go to the first folder; refuse a node that lacks one of the folders."""
    for path in needed_paths:
        if not Path(path).exists():
            raise ConfigError(
                f"the node '{socket.gethostname()}' does not see the folder",
                expected="a folder that every node has under the same path",
                found=f"no {path}",
            )
    os.chdir(needed_paths[0])


def _address(workers: WorkerConfig) -> str:
    """Address of the cluster; empty where none is named."""
    return workers.address or os.environ.get("RAY_ADDRESS") or ""


def _check_answer(address: str) -> None:
    """Refuse a host and port that accept no connection; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # other addresses, such as auto, Ray refuses at once
    if not host or not port.isdigit():
        return
    try:
        connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        connection.close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at '{shortened(address or 'this machine')}'",
        expected="address of a running cluster (ray start --head), or auto",
        found=" ".join(str(error).split())[:LONGEST_ERROR],
    )


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """Connect to a cluster; start one of this machine where no address is named."""
    if ray.is_initialized():
        yield
        return
    _connect(ray, address)
    try:
        with _without_prints(ray):
            yield
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one; keep our own handlers of signals."""
    # Ray sets handlers of its own, and does not unwind as ours do
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    settings = {} if address else OWN_CLUSTER
    try:
        ray.init(
            address or None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **settings,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster(address, error) from error
    finally:
        # only the main thread may set handlers
        with suppress(ValueError):
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextmanager
def _without_prints(ray: Any) -> Iterator[None]:
    """Keep Ray from printing about dead workers on stdout, which is for results.

    Ray has no option for this.
    """
    module = ray._private.worker
    name = "print_to_stdstream"
    print_function = getattr(module, name, None)
    try:
        setattr(module, name, lambda *values, **options: None)
        yield
    finally:
        setattr(module, name, print_function)


def _library() -> Any:
    """Import Ray, without its telemetry."""
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
