"""What runs inside a Ray cluster: workers, and the mailbox that keeps what they say."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.engines._base import Place, Task, serve
from gaam_cache.errors import ConfigError

ARRIVAL_SECONDS = 30.0
"""For the last words of a worker, whose mailbox may be on a node that is gone."""


class Sight(NamedTuple):
    """What a worker must see before it begins."""

    folder: str
    """Where it is to work, as here."""
    probe: str
    token: str
    files: tuple[str, ...]


class Mailbox:
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


class Worker:
    """A worker."""

    def work(self, task: Task, sight: Sight, mailbox: Any, place: Place) -> Any:
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


def _look(sight: Sight) -> None:
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
