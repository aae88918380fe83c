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
from gaam_cache.common.messages import install_command, shortened
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
POLL_SECONDS = 0.5  # longest wait for a result before the mailbox is emptied again
CONNECT_SECONDS = 10.0  # longest wait for the first node to accept a connection
DRAIN_SECONDS = 60  # longest wait for the mailbox to hand over its messages
ARRIVAL_SECONDS = 30.0
"""Longest wait for the last message of a worker to arrive; the mailbox may be on a lost
node."""
LONGEST_ERROR = 500  # most characters that are shown of an error of Ray
LONGEST_DEATH_REASON = 300  # most characters that are shown of the reason of a death
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
        _import_ray()
        if "," in workers.devices or ":" in device:
            raise ConfigError(
                "a cluster chooses its GPUs itself",
                expected="a number for --devices, or all; cuda or cpu for --device",
                found=f"--devices {workers.devices} --device {device}",
            )
        _check_reachable(_address(workers))

    def run(
        self, task: Task, workers: WorkerConfig, on_message: OnMessage
    ) -> list[Any]:
        """Start an actor for each worker, and wait until no work is left.

        Actors of Ray are processes on the machines of the cluster. One more actor, the
        mailbox, collects the messages of the workers.
        """
        self.check(task.device, workers)
        ray = _import_ray()
        make_folder(task.folder)
        # the workers work in the same folder as this process, which comes first
        folders = (Path.cwd(), task.folder, *task.other_paths)
        required_paths = [str(path.absolute()) for path in folders]
        with _connected(ray, _address(workers)):
            mailbox = _start_mailbox(ray)
            actors: list[Any] = []
            try:
                plan = _plan_actors(ray, task, workers)
                for _ in range(plan.num_workers):
                    actor_class = ray.remote(_WorkerActor).options(**plan.options)
                    actors.append(actor_class.remote())

                # The mailbox is an argument of the method. As an argument of the
                # constructor, it would be lost when Ray starts an actor again.
                worker_by_result: dict[Any, int] = {}
                for number, actor in enumerate(actors):
                    worker = Worker(
                        number, plan.num_workers, task.device, plan.workers_per_node
                    )
                    result = actor.work.remote(task, required_paths, mailbox, worker)
                    worker_by_result[result] = number
                supervisor = _Supervisor(ray, worker_by_result, mailbox, on_message)
                return supervisor.wait()
            # the workers are not needed any more, whether they are done or one failed
            finally:
                # nothing half-written is ever published, so killing is safe
                for actor in [*actors, mailbox]:
                    # the actor may be gone, or the cluster
                    with suppress(Exception):
                        ray.kill(actor)


class _ActorPlan(NamedTuple):
    """How many actors to start, and with which options."""

    num_workers: int  # one actor is one worker
    options: dict[str, Any]  # of every actor, as Ray takes them
    workers_per_node: int  # at most, if Ray spreads them evenly


def _plan_actors(ray: Any, task: Task, workers: WorkerConfig) -> _ActorPlan:
    """Choose the number of actors, and the GPUs and cores of each.

    Args:
        ray: the library, connected to a cluster.
        task: what the workers do; it names the device.
        workers: how many workers the user wants, and how many GPUs for each.
    """
    resources = ray.cluster_resources()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    num_gpus = resources.get("GPU", 0)
    gpus_per_worker = _gpus_per_worker(task, workers, num_gpus)

    # The user names the number of workers, or "all": then the workers use all GPUs, or
    # without GPUs each node gets one worker.
    if workers.devices != "all":
        num_workers = int(workers.devices)
    elif gpus_per_worker:
        num_workers = int(num_gpus / gpus_per_worker)
    else:
        num_workers = len(nodes)
    num_workers = max(1, num_workers)

    # One core feeds a GPU. Without GPUs, a worker gets an equal share of all cores, but
    # no more than a single node has.
    cores_per_worker = 1
    if not gpus_per_worker:
        cores_of_nodes = [node.get("CPU", 1) for node in nodes]
        cores_of_largest_node = int(max(cores_of_nodes, default=1))
        equal_share = int(resources.get("CPU", 1)) // num_workers
        cores_per_worker = max(1, min(cores_of_largest_node, equal_share))

    options = {
        "num_gpus": gpus_per_worker,
        "num_cpus": cores_per_worker,
        "scheduling_strategy": "SPREAD",
        "max_restarts": MOST_RESTARTS,
        "max_task_retries": MOST_RESTARTS,
    }
    # -(-a // b) is a / b, rounded up
    workers_per_node = -(-num_workers // max(1, len(nodes)))
    return _ActorPlan(num_workers, options, workers_per_node)


def _gpus_per_worker(task: Task, workers: WorkerConfig, num_gpus: float) -> float:
    """GPUs of one worker: 0 on a CPU, and a fraction if several workers share a GPU.

    Args:
        task: what the workers do; it names the device.
        workers: the setting of the user.
        num_gpus: number of GPUs in the whole cluster.
    """
    # a CPU task takes no GPU, whatever the configuration says
    if task.device == "cpu":
        return 0.0
    if workers.gpus_per_worker is not None:
        return workers.gpus_per_worker
    if task.device == "cuda":
        return 1.0
    if task.device == "auto" and num_gpus > 0:
        return 1.0
    return 0.0


def _start_mailbox(ray: Any) -> Any:
    """Start the mailbox: the actor to which workers send messages for this process.

    It runs on this node if possible, and takes no core from the workers.

    Args:
        ray: the library, which is imported only when this engine is used.

    Returns:
        The handle of the actor.
    """
    node = ray.get_runtime_context().get_node_id()
    strategies = ray.util.scheduling_strategies
    strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    actor_class = ray.remote(_Mailbox)
    actor_class = actor_class.options(num_cpus=0, scheduling_strategy=strategy)
    return actor_class.remote()


class _Supervisor:
    """Waits for the actors, and passes on their messages."""

    def __init__(
        self,
        ray: Any,
        worker_by_result: dict[Any, int],
        mailbox: Any,
        on_message: OnMessage,
    ) -> None:
        """Take over actors that were started.

        Args:
            ray: the library.
            worker_by_result: Ray's reference to the result of each worker -> number of
                the worker.
            mailbox: the actor that collects the messages of all workers.
            on_message: receives these messages.
        """
        self._ray = ray
        # results that have arrived are removed
        self._worker_by_awaited_result = worker_by_result
        self._mailbox = mailbox
        self._on_message = on_message
        self._results: list[Any] = []
        self._node_by_worker: dict[int, str] = {}  # of every worker that has begun
        self._last_death_reason = ""

    def wait(self) -> list[Any]:
        """Wait until every worker that has begun returns; return their results."""
        while True:
            awaited = list(self._worker_by_awaited_result)
            arrived, _ = self._ray.wait(awaited, timeout=POLL_SECONDS)
            self._pass_on_messages()
            for result in arrived:
                self._take_result(result)

            # A worker returns when all work is done. A worker that has not begun by
            # then, because the cluster has no room for it, would find nothing to do.
            if self._results and not self._is_any_worker_busy():
                return self._results
            # no worker is left, and none has returned
            if not self._worker_by_awaited_result:
                raise all_died_error(self._last_death_reason)
            # no worker has begun yet
            if not self._node_by_worker:
                self._report_waiting()

    def _is_any_worker_busy(self) -> bool:
        """Whether a worker has begun and has neither returned nor died."""
        # the result of a worker is awaited until it returns or dies; its node is known
        # once it has begun
        begun_workers = self._node_by_worker.keys()
        awaited_workers = self._worker_by_awaited_result.values()
        return any(number in begun_workers for number in awaited_workers)

    def _pass_on_messages(self) -> None:
        """Fetch all messages that have arrived, and pass them on."""
        messages: list[tuple[int, str, Any]] = []
        # If the mailbox's node is lost, there are no more messages. The work goes on,
        # and the shared folder shows what is done.
        with suppress(self._ray.exceptions.RayError, TimeoutError):
            request = self._mailbox.drain.remote()
            messages = self._ray.get(request, timeout=DRAIN_SECONDS)
        for number, kind, value in messages:
            if kind == "began":
                self._note_start(number, value)
            else:
                self._on_message(number, kind, value)

    def _note_start(self, number: int, node: str) -> None:
        """Remember on which node a worker began; report its death if it began again."""
        # only a worker that died begins a second time
        if number in self._node_by_worker:
            self._report_death(number, f"it is started again on {node}")
        self._node_by_worker[number] = node

    def _take_result(self, result: Any) -> None:
        """Keep the result of a worker; or report its death, or raise its error.

        ``result`` is Ray's reference to a result that has arrived.
        """
        number = self._worker_by_awaited_result.pop(result)
        try:
            self._results.append(self._ray.get(result))
        except self._ray.exceptions.RayActorError as error:
            reason = " ".join(str(error).split())
            self._last_death_reason = reason[:LONGEST_DEATH_REASON]
            self._report_death(number, "the others go on")
        # the worker raised an error: ours is inside of Ray's
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def _report_death(self, number: int, consequence: str) -> None:
        """Report that a worker died, as a message and as a warning.

        Args:
            number: number of the worker.
            consequence: how the work goes on, for the warning.
        """
        node = self._node_by_worker.get(number, "no node")
        self._on_message(number, "died", node)
        warn_of_death(f"worker {number + 1} on {node}", consequence)

    def _report_waiting(self) -> None:
        """Say that no worker has begun, and what the cluster could offer one."""
        resources = self._ray.cluster_resources()
        gpus = f"{resources.get('GPU', 0):g} GPUs"
        cpus = f"{resources.get('CPU', 0):g} CPUs"
        message = f"no worker could begin yet: the cluster has {gpus} and {cpus}"
        # the number of no worker
        self._on_message(-1, "waiting", message)


class _Mailbox:
    """Keeps the messages of all workers until the supervisor fetches them."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, str, Any]] = []

    def put(self, number: int, kind: str, value: Any) -> None:
        """Add a message of a worker."""
        self._messages.append((number, kind, value))

    def drain(self) -> list[tuple[int, str, Any]]:
        """Hand over all messages since the last call, and forget them."""
        messages = self._messages
        self._messages = []
        return messages


class _WorkerActor:
    """A worker in a process of Ray."""

    def work(
        self, task: Task, required_paths: list[str], mailbox: Any, worker: Worker
    ) -> Any:
        """Do the task, and return its result.

        Ray calls this again after a restart. The task then does what the shared folder
        still lacks.

        Args:
            task: what to do.
            required_paths: folders that this node must have. The first is to be the
                current one.
            mailbox: the actor that takes the messages.
            worker: which worker this is.
        """
        import ray

        last_message = mailbox.put.remote(worker.number, "began", socket.gethostname())
        _enter_folders(required_paths)

        def send(kind: str, value: Any) -> None:
            nonlocal last_message
            last_message = mailbox.put.remote(worker.number, kind, value)

        try:
            return do_task(task, worker, send)
        finally:
            # The end of this process would lose messages that are on their way. They
            # keep their order: after the last one, all have arrived.
            ray.wait([last_message], timeout=ARRIVAL_SECONDS)


def _enter_folders(required_paths: list[str]) -> None:
    """Make the first folder the current one; refuse a node that lacks one of them."""
    for path in required_paths:
        if not Path(path).exists():
            raise ConfigError(
                f"the node '{socket.gethostname()}' does not see the folder",
                expected="a folder that every node has under the same path",
                found=f"no {path}",
            )
    os.chdir(required_paths[0])


def _address(workers: WorkerConfig) -> str:
    """Address of the cluster, from the settings or the environment; empty without one.

    An empty address stands for a cluster that this machine starts for itself.
    """
    return workers.address or os.environ.get("RAY_ADDRESS") or ""


def _check_reachable(address: str) -> None:
    """Refuse an address whose host and port accept no connection.

    Ray itself would try for minutes. An address without a host and a port is not tried.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # other addresses, such as auto, Ray refuses at once
    if not host or not port.isdigit():
        return
    try:
        connection = socket.create_connection(
            (host, int(port)), timeout=CONNECT_SECONDS
        )
        connection.close()
    except (OSError, OverflowError) as error:
        raise _no_cluster_error(address, error) from error


def _no_cluster_error(address: str, error: Exception) -> ConfigError:
    """Build the error for a cluster that did not answer.

    Args:
        address: its address; empty for a cluster of this machine.
        error: why it did not answer.
    """
    return ConfigError(
        f"no Ray cluster at '{shortened(address or 'this machine')}'",
        expected="address of a running cluster (ray start --head), or auto",
        found=" ".join(str(error).split())[:LONGEST_ERROR],
    )


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Stay connected to a cluster while the context is open.

    Without an address, the cluster is one that this machine starts for itself. A
    connection that the caller has opened is used, and stays open.
    """
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
    """Connect to a cluster of Ray, or start one if the address is empty.

    The signal handlers of this process stay as they are.

    Raises:
        ConfigError: there is no cluster at the address.
    """
    # Ray sets signal handlers that end the process at once. Those of gaam let it finish
    # what it is writing, so they are put back below.
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
        raise _no_cluster_error(address, error) from error
    finally:
        # only the main thread may set handlers
        with suppress(ValueError):
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextmanager
def _without_prints(ray: Any) -> Iterator[None]:
    """While open, keep Ray from printing about dead workers on stdout.

    stdout is for results. Ray has no option for this, so that a function that does
    nothing takes the place of its own.
    """
    module = ray._private.worker
    name = "print_to_stdstream"
    print_function = getattr(module, name, None)
    try:
        setattr(module, name, lambda *values, **options: None)
        yield
    finally:
        setattr(module, name, print_function)


def _import_ray() -> Any:
    """Import Ray, without its telemetry; ConfigError if it is missing."""
    # Ray reads these variables. The second one is for workers without a reserved GPU:
    # they still see all GPUs, and Ray prints no warning about that.
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
            hint=install_command("ray"),
        ) from error
    return ray
