"""Who holds a lease: what its file says, whoever wrote it."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from gaam_cache.engines.sharing.processes import is_alive, stat_fields, this_machine
from gaam_cache.format.files import read_bytes
from gaam_cache.messages import visible

MAX_BYTES = 2**12


class Holder(NamedTuple):
    """Who announced it, as far as the file says."""

    host: str = "an unknown machine"
    pid: int = 0
    since: str = ""
    """UTC by the holder's clock; for people."""
    machine: str | None = None
    """Where ``pid`` means something."""
    started: str | None = None
    """Start of the process in ticks, which tells it from a later one of the same number."""
    given_back: bool = False

    def is_of(self, machine: str | None) -> bool:
        """Whether it is a process of that machine."""
        return self.machine is not None and self.machine == machine

    def is_dead(self, machine: str | None) -> bool:
        """Whether it was a process of that machine, which is this one, and has ended."""
        return self.is_of(machine) and not is_alive(self.pid, self.started)

    def in_words(self) -> str:
        """For people."""
        process = f", process {self.pid}" if self.pid else ""
        return f"{self.host}{process}" + (f", since {self.since}" if self.since else "")


def this_process() -> Holder:
    """What a lease of this process says."""
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        since=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        machine=this_machine(),
        started=stat_fields(os.getpid())[1],
    )


def content_of(holder: Holder) -> bytes:
    """What the file of a lease holds."""
    return json.dumps(holder._asdict()).encode() + b"\n"


def read_content(path: Path) -> bytes:
    """What a file holds that may be a lease; nothing where it cannot be one.

    Raises:
        FileNotFoundError: it is gone.
    """
    try:
        return read_bytes(path, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        raise
    except (OSError, ValueError):
        return b""  # a folder, a link, a pipe: whoever put it there does not renew it


def parse(content: bytes) -> Holder:
    """The holder; unknown where the file says nothing that makes sense, as while it is written."""
    try:
        holder = Holder(**json.loads(content))
    except (ValueError, TypeError, RecursionError):
        return Holder()
    texts = (holder.host, holder.since, holder.machine or "", holder.started or "")
    if not all(isinstance(text, str) and len(text) < 300 for text in texts):
        return Holder()
    if type(holder.pid) is not int or not 0 < holder.pid < 2**31:
        return Holder()
    return holder._replace(
        host=visible(holder.host),
        since=visible(holder.since),
        given_back=holder.given_back is True,
    )
