"""A cluster of Ray as seen from outside: the library, the connection, the folder that is shared."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gaam_cache import terminal
from gaam_cache.engines._base import Task
from gaam_cache.engines._ray_actors import Sight
from gaam_cache.errors import ConfigError
from gaam_cache.format.files import write_file
from gaam_cache.messages import install, shortened

ANSWER_SECONDS = 10.0
"""For the first node of a cluster to accept a connection."""
OLDEST = "2.56"
"""The oldest Ray whose errors and restarts were looked at."""
OWN_CLUSTER: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
"""Of this machine alone: nothing of ours goes through the store, which would take a third of it."""


@contextmanager
def seen(task: Task) -> Iterator[Sight]:
    """A file in the shared folder, for workers to read."""
    token = secrets.token_hex(16)
    probe = task.folder.absolute() / f".seen-{token}"
    write_file(probe, token.encode())
    files = tuple(str(path.absolute()) for path in task.needs)
    try:
        yield Sight(str(Path.cwd()), str(probe), token, files)
    finally:
        with suppress(OSError):
            probe.unlink()


@contextmanager
def cluster(ray: Any, address: str | None) -> Iterator[None]:
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


def check_address(address: str | None) -> None:
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


def library() -> Any:
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
