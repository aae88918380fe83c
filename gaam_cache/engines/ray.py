"""Workers of a Ray cluster: an actor for each GPU, or for a group of cores.

Ray Core alone: actors hold the encoder or the decoders, messages are names and numbers, and nothing
goes through Ray's store. What is done is said by the shared folder, so that Ray may kill, restart
and move workers as it likes.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import terminal
from gaam_cache.engines._base import Engine, Hear, Place, Task, all_died, serve
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.messages import install, shortened
from gaam_cache.placing import Placing
from gaam_cache.store.files import write_file

MOST_RESTARTS = 10
"""Of one worker: on a cluster nodes come and go."""
LOOK_SECONDS = 0.5
"""Between two looks at what workers said."""
GROWTH_SECONDS = 5.0
"""Between two looks at whether nodes have come."""
ANSWER_SECONDS = 10.0
"""For the first node of a cluster to accept a connection."""
OLDEST = "2.56"
"""The oldest Ray whose errors and restarts were looked at."""
OWN_CLUSTER: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
"""Of this machine alone: nothing of ours goes through the store, which would take a third of it."""
ARRIVAL_SECONDS = 30.0
"""For the last words of a worker, whose mailbox may be on a node that is gone."""


class Ray(Engine):
    """Actors of Ray; a cluster of this machine alone where there is no other."""

    def check(self, device: str, placing: Placing) -> None:
        """Refuse what names devices of this machine, or no cluster; the library must be there."""
        _library()
        if "," in placing.devices:
            raise ConfigError(
                "--devices names GPUs of this machine",
                expected="a number of workers, or all, beside --engine ray",
                found=placing.devices,
            )
        if ":" in device:
            raise ConfigError(
                f"--device {device} is one device of this machine",
                expected="--device cuda or cpu beside --engine ray",
            )
        _check_address(placing.address)

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        """Start actors, more of them as nodes come, and wait until what is to do is done."""
        self.check(task.device, placing)
        ray = _library()
        with _cluster(ray, placing.address), _seen(task) as sight:
            crew = _Crew(ray, task, placing, sight)
            if not placing.address and "RAY_ADDRESS" not in os.environ:
                crew.check_gpus()
            try:
                return _watch(ray, crew, hear)
            finally:
                crew.dismiss()


def _watch(ray: Any, crew: _Crew, hear: Hear) -> list[Any]:
    results: list[Any] = []
    lost: list[str] = []
    began: dict[int, str] = {}
    looked = -GROWTH_SECONDS
    while True:
        if time.monotonic() - looked >= GROWTH_SECONDS:
            crew.grow()
            looked = time.monotonic()
        ended, _ = ray.wait(list(crew.at_work), timeout=LOOK_SECONDS)
        terminal.go_on()
        for number, kind, value in crew.heard():
            if kind != "began":
                hear(number, kind, value)
            elif number in began:
                hear(number, "died", began[number])
                _warn_of_death(number, began[number], f"it is started again on {value}")
                began[number] = value
            else:
                began[number] = value
        for reference in ended:
            number = crew.at_work.pop(reference)
            try:
                results.append(ray.get(reference))
            except ray.exceptions.RayActorError as error:
                where = began.get(number, "no node")
                hear(number, "died", where)
                _warn_of_death(number, where, "the others go on")
                lost.append(" ".join(str(error).split())[:300])
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
        # who never began has nothing left to do
        if results and not set(crew.at_work.values()) & began.keys():
            return results
        if not crew.at_work:
            raise all_died(len(lost), lost[-1])
        if not began:
            hear(-1, "waiting", crew.waiting())


class _Crew:
    """Actors, what they are doing, and what they say."""

    def __init__(self, ray: Any, task: Task, placing: Placing, sight: _Sight) -> None:
        self.at_work: dict[Any, int] = {}
        """What each is doing, and its number."""
        self._ray = ray
        self._task = task
        self._asked = placing.devices
        self._sight = sight
        self._actors: list[Any] = []
        self._gpus = _gpus_of_each(ray, task.device, placing.gpus_per_worker)
        here = ray.get_runtime_context().get_node_id()
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
        self._mailbox = ray.remote(_Mailbox).options(num_cpus=0, scheduling_strategy=near).remote()

    def check_gpus(self) -> None:
        """Refuse to wait for GPUs in a cluster to which no node will come.

        Raises:
            ConfigError: no worker could ever begin.
        """
        there = self._ray.cluster_resources().get("GPU", 0)
        if self._gpus > there:
            raise ConfigError(
                "no worker can begin",
                expected=f"{self._gpus:g} GPUs for each",
                found=f"{there:g} on this machine, which is all of the cluster",
                hint="--device cpu, or address of another cluster",
            )

    def grow(self) -> None:
        """Start workers as long as there are fewer than asked for, or than there is room for."""
        total = max(1, self._wanted())
        while len(self._actors) < total:
            number = len(self._actors)
            actor = (
                self._ray.remote(_Worker)
                .options(
                    num_gpus=self._gpus,
                    num_cpus=self._cpus(total),
                    max_restarts=MOST_RESTARTS,
                    max_task_retries=MOST_RESTARTS,
                    scheduling_strategy="SPREAD",
                )
                .remote()
            )
            self._actors.append(actor)
            # the mailbox is no argument of the constructor: a restart would not find it again
            place = Place(number, total, self._task.device, -(-total // self._nodes()))
            work = actor.work.remote(self._task, self._sight, self._mailbox, place)
            self.at_work[work] = number

    def _wanted(self) -> int:
        if self._asked != "all":
            return int(self._asked)
        there = self._ray.cluster_resources()
        if self._gpus:
            return int(there.get("GPU", 0) / self._gpus)
        return self._nodes()

    def _nodes(self) -> int:
        return max(1, sum(node["Alive"] for node in self._ray.nodes()))

    def _cpus(self, total: int) -> int:
        """Cores of a worker: with a GPU one, which feeds it; else its part of the cluster."""
        if self._gpus:
            return 1
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = int(max((node.get("CPU", 1) for node in alive), default=1))
        return max(1, min(most, int(self._ray.cluster_resources().get("CPU", 1)) // total))

    def heard(self) -> list[tuple[int, str, Any]]:
        """What workers have said since."""
        try:
            said: list[tuple[int, str, Any]] = self._ray.get(
                self._mailbox.drain.remote(), timeout=60
            )
        except (self._ray.exceptions.RayError, TimeoutError):
            return []  # its node is gone: what is done is in the folder all the same
        return said

    def waiting(self) -> str:
        """That no worker has begun, and why."""
        there = self._ray.cluster_resources()
        what = (
            f"{self._gpus:g} GPUs" if self._gpus else f"{self._cpus(max(1, self._wanted()))} CPUs"
        )
        return (
            f"no worker could begin yet: each needs {what}, the cluster has "
            f"{there.get('GPU', 0):g} GPUs and {there.get('CPU', 0):g} CPUs"
        )

    def dismiss(self) -> None:
        """End all workers: whatever they are writing, nothing half-written is ever published."""
        for actor in [*self._actors, self._mailbox]:
            with suppress(Exception):  # it is gone, or the cluster is
                self._ray.kill(actor)


def _gpus_of_each(ray: Any, device: str, asked: float | None) -> float:
    if device == "cpu":
        return 0
    if asked is not None:
        return asked
    return 1 if device != "auto" or ray.cluster_resources().get("GPU", 0) else 0


def _warn_of_death(number: int, where: str, what: str) -> None:
    warnings.warn(
        f"worker {number + 1} on {where} died without a word (killed, out of memory, or its node "
        f"is gone): {what}; what it had at work is made again",
        GaamWarning,
        stacklevel=4,
    )


@contextmanager
def _seen(task: Task) -> Iterator[_Sight]:
    """A file in the shared folder, for workers to read."""
    token = secrets.token_hex(16)
    probe = task.folder.absolute() / f".seen-{token}"
    write_file(probe, token.encode())
    files = tuple(str(path.absolute()) for path in task.needs)
    try:
        yield _Sight(str(Path.cwd()), str(probe), token, files)
    finally:
        with suppress(OSError):
            probe.unlink()


@contextmanager
def _cluster(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to a cluster; one of this machine is started where none was named.

    Raises:
        ConfigError: there is none at that address.
    """
    if ray.is_initialized():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address or os.environ.get("RAY_ADDRESS") else OWN_CLUSTER),
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster(address, str(error)) from error
    finally:
        with suppress(ValueError):  # not in the main thread
            for number, handler in handlers.items():
                signal.signal(number, handler)
    try:
        with _silenced(ray):
            yield
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Refuse an address at which nobody answers: Ray itself asks for minutes.

    Raises:
        ConfigError: there is none.
    """
    named = address or os.environ.get("RAY_ADDRESS") or ""
    host, _, port = named.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return  # auto, local: Ray says at once whether there is one
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str | None, found: str) -> ConfigError:
    named = address or os.environ.get("RAY_ADDRESS") or "this machine"
    return ConfigError(
        f"no Ray cluster at '{shortened(named)}'",
        expected="address of a cluster that runs (ray start --head), or auto",
        found=" ".join(found.split())[:500],
    )


@contextmanager
def _silenced(ray: Any) -> Iterator[None]:
    """Workers that die are ours to tell of; Ray does so on stdout, and no option says otherwise."""
    inside = ray._private.worker
    prints = getattr(inside, "print_to_stdstream", None)
    if prints is not None:
        inside.print_to_stdstream = lambda *said, **how: None
    try:
        yield
    finally:
        if prints is not None:
            inside.print_to_stdstream = prints


def _library() -> Any:
    """The library, without its telemetry.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ConfigError(
            "--engine ray needs Ray",
            expected=f"ray >= {OLDEST} here and on every node",
            found=str(error),
            hint=install("ray"),
        ) from error
    return ray


class _Sight(NamedTuple):
    """What a worker must see before it begins."""

    folder: str
    """Where it is to work, as here."""
    probe: str
    token: str
    files: tuple[str, ...]


class _Mailbox:
    """Keeps what workers say until it is asked for."""

    def __init__(self) -> None:
        self._said: list[tuple[int, str, Any]] = []

    def put(self, number: int, kind: str, value: Any) -> None:
        """A worker says something."""
        self._said.append((number, kind, value))

    def drain(self) -> list[tuple[int, str, Any]]:
        """What was said since the last time."""
        said, self._said = self._said, []
        return said


class _Worker:
    """A worker."""

    def work(self, task: Task, sight: _Sight, mailbox: Any, place: Place) -> Any:
        """Do the task, from the beginning or, after a restart, from where the folder says."""
        import ray

        last = mailbox.put.remote(place.number, "began", socket.gethostname())
        _look(sight)

        def tell(kind: str, value: Any) -> None:
            nonlocal last
            last = mailbox.put.remote(place.number, kind, value)

        try:
            return serve(task, place, tell)
        finally:  # what is said last arrives before the result: messages of one are in order
            ray.wait([last], timeout=ARRIVAL_SECONDS)


def _look(sight: _Sight) -> None:
    """Refuse a node that does not see what it is to work on, before anything is loaded.

    Raises:
        ConfigError: naming the node.
    """
    node = socket.gethostname()
    try:
        os.chdir(sight.folder)
        found = Path(sight.probe).read_text("ascii")
    except OSError as error:
        found = f"{error.filename}: {error.strerror}"
    missing = [file for file in sight.files if not Path(file).exists()]
    if found == sight.token and not missing:
        return
    where = str(Path(sight.probe).parent)
    raise ConfigError(
        f"the node '{node}' does not see the folder",
        expected="a folder of a file system that all nodes share",
        found=f"no {missing[0]}" if found == sight.token else found,
        where=missing[0] if found == sight.token else where,
        hint="put it where every node has it under the same path",
    )
