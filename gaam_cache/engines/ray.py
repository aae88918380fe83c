"""Workers of a Ray cluster: an actor for each GPU, or for a group of cores.

Ray Core alone: actors hold the encoder or the decoders, messages are names and numbers, and nothing
goes through Ray's store. What is done is said by the shared folder, so that Ray may kill, restart
and move workers as it likes.
"""

from __future__ import annotations

import os
import time
import warnings
from contextlib import suppress
from typing import Any

from gaam_cache import terminal
from gaam_cache.engines._base import Engine, Hear, Place, Task, all_died
from gaam_cache.engines._ray_actors import Mailbox, Sight, Worker
from gaam_cache.engines._ray_cluster import check_address, cluster, library, seen
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.placing import Placing

MOST_RESTARTS = 10
"""Of one worker: on a cluster nodes come and go."""
LOOK_SECONDS = 0.5
"""Between two looks at what workers said."""
GROWTH_SECONDS = 5.0
"""Between two looks at whether nodes have come."""


class Ray(Engine):
    """Actors of Ray; a cluster of this machine alone where there is no other."""

    def check(self, device: str, placing: Placing) -> None:
        """Refuse what names devices of this machine, or no cluster; the library must be there."""
        library()
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
        check_address(placing.address)

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        """Start actors, more of them as nodes come, and wait until what is to do is done."""
        self.check(task.device, placing)
        ray = library()
        with cluster(ray, placing.address), seen(task) as sight:
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

    def __init__(self, ray: Any, task: Task, placing: Placing, sight: Sight) -> None:
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
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=near).remote()

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
                self._ray.remote(Worker)
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
