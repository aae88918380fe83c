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
from typing import Any

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
_Sight = tuple[str, tuple[str, ...]]
"""The folder that a worker is to work in, and what must be there."""


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
        address = _address(placing)
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():  # of auto or local Ray says so at once, of others in minutes
            try:
                socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
            except (OSError, OverflowError) as error:
                raise _no_cluster(address, error) from error

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        """Start actors, more of them as nodes come, and wait until what is to do is done."""
        self.check(task.device, placing)
        ray = _library()
        with _cluster(ray, _address(placing)), _seen(task) as sight:
            crew = _Crew(ray, task, placing, sight)
            try:
                return crew.work(hear)
            finally:
                crew.dismiss()


class _Crew:
    """Actors, what they are doing, and what they say."""

    def __init__(self, ray: Any, task: Task, placing: Placing, sight: _Sight) -> None:
        self._ray, self._task, self._asked, self._sight = ray, task, placing.devices, sight
        self._actors: list[Any] = []
        self._at_work: dict[Any, int] = {}
        """What each is doing, and its number."""
        gpus = placing.gpus_per_worker
        there = ray.cluster_resources().get("GPU", 0)
        if task.device == "cpu" or gpus is None:
            gpus = float(task.device == "cuda" or (task.device == "auto" and there > 0))
        self._gpus = gpus
        if self._gpus > there and not _address(placing):  # no node will come
            raise ConfigError(
                "no worker can begin",
                expected=f"{self._gpus:g} GPUs for each",
                found=f"{there:g} on this machine, which is all of the cluster",
                hint="--device cpu, or address of another cluster",
            )
        here = ray.get_runtime_context().get_node_id()
        near = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
        self._mailbox = ray.remote(_Mailbox).options(num_cpus=0, scheduling_strategy=near).remote()

    def work(self, hear: Hear) -> list[Any]:
        """Wait for all who began; what they returned."""
        ray, lost = self._ray, ""
        results: list[Any] = []
        began: dict[int, str] = {}
        looked = -GROWTH_SECONDS
        while True:
            if time.monotonic() - looked >= GROWTH_SECONDS:
                self._grow()
                looked = time.monotonic()
            ended, _ = ray.wait(list(self._at_work), timeout=LOOK_SECONDS)
            terminal.go_on()
            for number, kind, value in self._heard():
                if kind != "began":
                    hear(number, kind, value)
                    continue
                if number in began:
                    hear(number, "died", began[number])
                    _warn_of_death(number, began[number], f"it is started again on {value}")
                began[number] = value
            for reference in ended:
                number = self._at_work.pop(reference)
                try:
                    results.append(ray.get(reference))
                except ray.exceptions.RayActorError as error:
                    where, lost = began.get(number, "no node"), " ".join(str(error).split())[:300]
                    hear(number, "died", where)
                    _warn_of_death(number, where, "the others go on")
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
            # who never began has nothing left to do
            if results and not set(self._at_work.values()) & began.keys():
                return results
            if not self._at_work:
                raise all_died(len(self._actors), lost)
            if not began:
                there = ray.cluster_resources()
                what = f"{self._gpus:g} GPUs" if self._gpus else "CPUs"
                hear(
                    *(-1, "waiting"),
                    f"no worker could begin yet: each needs {what}, the cluster has "
                    f"{there.get('GPU', 0):g} GPUs and {there.get('CPU', 0):g} CPUs",
                )

    def _grow(self) -> None:
        """Start workers as long as there are fewer than asked for, or than there is room for."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        there = self._ray.cluster_resources()
        total = len(nodes)
        if self._asked != "all":
            total = int(self._asked)
        elif self._gpus:
            total = int(there.get("GPU", 0) / self._gpus)
        total = max(1, total)
        cpus = 1  # feeds a GPU; without one, a part of the cluster
        if not self._gpus:
            most = int(max((node.get("CPU", 1) for node in nodes), default=1))
            cpus = max(1, min(most, int(there.get("CPU", 1)) // total))
        for number in range(len(self._actors), total):
            actor = (
                self._ray.remote(_Worker)
                .options(
                    num_gpus=self._gpus,
                    num_cpus=cpus,
                    max_restarts=MOST_RESTARTS,
                    max_task_retries=MOST_RESTARTS,
                    scheduling_strategy="SPREAD",
                )
                .remote()
            )
            self._actors.append(actor)
            # the mailbox is no argument of the constructor: a restart would not find it again
            place = Place(number, total, self._task.device, -(-total // max(1, len(nodes))))
            work = actor.work.remote(self._task, self._sight, self._mailbox, place)
            self._at_work[work] = number

    def _heard(self) -> list[tuple[int, str, Any]]:
        """What workers have said since."""
        try:
            said: list[tuple[int, str, Any]] = self._ray.get(
                self._mailbox.drain.remote(), timeout=60
            )
        except (self._ray.exceptions.RayError, TimeoutError):
            return []  # its node is gone: what is done is in the folder all the same
        return said

    def dismiss(self) -> None:
        """End all workers: whatever they are writing, nothing half-written is ever published."""
        for actor in [*self._actors, self._mailbox]:
            with suppress(Exception):  # it is gone, or the cluster is
                self._ray.kill(actor)


def _warn_of_death(number: int, where: str, what: str) -> None:
    warnings.warn(
        f"worker {number + 1} on {where} died without a word (killed, out of memory, or its node "
        f"is gone): {what}; what it had at work is made again",
        GaamWarning,
        stacklevel=4,
    )


def _address(placing: Placing) -> str:
    """Of a cluster; empty where none was named."""
    return placing.address or os.environ.get("RAY_ADDRESS") or ""


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at '{shortened(address or 'this machine')}'",
        expected="address of a cluster that runs (ray start --head), or auto",
        found=" ".join(str(error).split())[:500],
    )


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """A connection to a cluster; one of this machine is started where none was named.

    Workers that die are ours to tell of: Ray does so on stdout, and no option says otherwise.

    Raises:
        ConfigError: there is none at that address.
    """
    if ray.is_initialized():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    own = {} if address else OWN_CLUSTER
    try:
        ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster(address, error) from error
    finally:
        with suppress(ValueError):  # not in the main thread
            for number, handler in handlers.items():
                signal.signal(number, handler)
    inside = ray._private.worker
    prints = getattr(inside, "print_to_stdstream", None)
    try:
        if prints is not None:
            inside.print_to_stdstream = lambda *said, **how: None
        yield
    finally:
        if prints is not None:
            inside.print_to_stdstream = prints
        ray.shutdown()


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


@contextmanager
def _seen(task: Task) -> Iterator[_Sight]:
    """What a worker must see, among it a file of this moment in the shared folder."""
    probe = task.folder.absolute() / f".seen-{secrets.token_hex(16)}"
    write_file(probe, b"")
    try:
        yield str(Path.cwd()), (str(probe), *(str(path.absolute()) for path in task.needs))
    finally:
        with suppress(OSError):
            probe.unlink()


def _look(sight: _Sight) -> None:
    """Go where we are to work, and refuse a node that does not see what is there.

    Raises:
        ConfigError: naming the node.
    """
    folder, files = sight
    missing = [path for path in (folder, *files) if not Path(path).exists()]
    if missing:
        raise ConfigError(
            f"the node '{socket.gethostname()}' does not see the folder",
            expected="a folder of a file system that all nodes share",
            found=f"no {missing[0]}",
            where=str(Path(missing[0]).parent),
            hint="put it where every node has it under the same path",
        )
    os.chdir(folder)
