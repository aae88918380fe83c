"""Who works on what: a lease file for every piece of work in a folder that workers share.

A lease is a hint: it makes it rare that two do the same, and whoever publishes does so exclusively.
The file ``NAME.lease`` is created exclusively (by a hard link, which NFS has too, or under a lock),
says who holds it, and is touched every ten seconds. Stale is what has not been touched for a while
by *our* monotonic clock, and at once the lease of a process of this machine that has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gaam_cache.common.messages import visible
from gaam_cache.store.files import regular_file, remove_lock, write_file

RENEW_SECONDS = 10.0
PATIENCE_SECONDS = 90.0
"""Renewals may come late: a disk that is busy, a slow machine, a client of NFS, which may show for
a minute what a file was."""
SUFFIX = ".lease"
LEASE_FOLDER = "leases"  # of a cache


class Holder(NamedTuple):
    """Who leases a piece of work, as far as the file says."""

    host: str = "an unknown machine"
    pid: int = 0
    since: str = ""  # UTC by the holder's clock; for people
    machine: str | None = None  # where ``pid`` means something
    token: str = ""  # of this lease alone

    @property
    def is_dead(self) -> bool:
        """Whether it was a process of this machine, which has ended."""
        here = self.machine is not None and self.machine == this_machine()
        return here and not is_alive(self.pid)

    def in_words(self) -> str:
        process = f", process {self.pid}" if self.pid else ""
        return f"{self.host}{process}" + (f", since {self.since}" if self.since else "")


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """That we work on ``name``."""

    owner: Leases
    name: str
    token: str

    def is_ours(self) -> bool:
        """Whether nobody found it stale and took over."""
        return _holder(self.owner.path(self.name)).token == self.token

    def release(self) -> None:
        """Nobody needs it any more: the work is published, or another may begin it anew."""
        self.owner.held.pop(self.name, None)
        if self.is_ours():
            with suppress(OSError):
                self.owner.path(self.name).unlink()


class _Sighting(NamedTuple):
    """A lease of another as we saw it last."""

    pulse: tuple[
        int, int
    ]  # another inode or time of change is another lease, or a renewal
    since: float  # when we first saw this pulse
    beats: bool  # whether its holder was seen at work: one of this machine, or one that renewed


class Leases:
    """Our leases in a folder, renewed by a thread in this context."""

    def __init__(
        self,
        folder: Path,
        *,
        us: Holder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.us = us or this_process()
        self.held: dict[str, Lease] = {}
        self._folder, self._clock = folder, clock
        self._seen: dict[str, _Sighting] = {}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, name: str) -> Lease | Holder:
        """Lease work on ``name``, or say who does it.

        Whoever got a lease must look once more whether the work is done: it may have been finished
        a moment before.
        """
        token = secrets.token_hex(8)
        content = json.dumps(self.us._replace(token=token)._asdict()).encode()
        while not self._written(name, content):
            if holder := self._judge(name):
                return holder
            self._remove_stale(name)
        lease = self.held[name] = Lease(self, name, token)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._renew_until_closed, daemon=True
            )
            self._thread.start()
        return lease

    def alive(self) -> set[str]:
        """Names that others hold now who were seen to be at work."""
        return {
            name
            for name in self._of_others()
            if self._judge(name) and self._seen[name].beats
        }

    def others_at_work(self, prefix: str) -> bool:
        """Whether anybody else leases work on a name that begins so."""
        return any(
            name.startswith(prefix) and self._judge(name) for name in self._of_others()
        )

    def clear_dead(self) -> None:
        """Remove leases of whoever is no longer at work, and the folder if it is empty."""
        with suppress(OSError):
            for name in self._of_others():
                if self._judge(name) is None:
                    self._remove_stale(name)
            if not _names(self._folder):
                remove_lock(self._folder)
            self._folder.rmdir()

    def path(self, name: str) -> Path:
        """The file of a lease."""
        return self._folder / f"{name}{SUFFIX}"

    def _written(self, name: str, content: bytes) -> bool:
        while True:
            with suppress(FileNotFoundError):  # whoever saw the end removed the folder
                return write_file(self.path(name), content, exclusive=True)

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(RENEW_SECONDS):
            for lease in tuple(self.held.values()):
                if lease.is_ours():
                    with suppress(OSError):  # at worst it becomes stale
                        os.utime(self.path(lease.name), follow_symlinks=False)

    def _of_others(self) -> list[str]:
        return [name for name in _names(self._folder) if name not in self.held]

    def _judge(self, name: str) -> Holder | None:
        """Who works on it; None where nobody does any more."""
        path, now = self.path(name), self._clock()
        try:
            status = path.lstat()
        except OSError:
            self._seen.pop(name, None)  # the work is done
            return None
        holder, pulse = _holder(path), (status.st_ino, status.st_mtime_ns)
        before = self._seen.get(name)
        if before is None or before.pulse != pulse:
            here = holder.machine is not None and holder.machine == self.us.machine
            before = self._seen[name] = _Sighting(
                pulse, now, here or before is not None
            )
        dead = holder.is_dead or now - before.since > PATIENCE_SECONDS
        return None if dead else holder

    def _remove_stale(self, name: str) -> None:
        if name in self._seen:  # what is gone by itself may be leased again by now
            self.path(name).unlink(missing_ok=True)

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *reason: object) -> None:
        """Give back what is held and stop renewing."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for lease in tuple(self.held.values()):
            lease.release()


@dataclass(frozen=True, slots=True)
class Holding:
    """A piece of work that somebody leases, for whoever looks on."""

    name: str  # of the shard, or of the seeds
    host: str
    process: int
    since: str  # UTC by the holder's clock
    dead: bool  # a process of this machine that has ended: the next worker takes over

    def in_words(self) -> str:
        gone = ", which has ended: the next worker makes it again" if self.dead else ""
        return Holder(self.host, self.process, self.since).in_words() + gone


def holdings(folder: Path) -> list[Holding]:
    """Who leases what in a folder, by name; nothing where there is none."""
    found = [(name, _holder(folder / f"{name}{SUFFIX}")) for name in _names(folder)]
    return [
        Holding(n, one.host, one.pid, one.since, one.is_dead)
        for n, one in found
        if one.pid
    ]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.stem for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return []


def _holder(path: Path) -> Holder:
    """Whoever a file names; unknown where it says nothing that makes sense."""
    try:
        regular_file(path)  # a pipe or device would be read for ever
        given = json.loads(path.read_bytes()[:4096])
        one = Holder(**{name: given[name] for name in Holder._fields if name in given})
        return one._replace(
            host=visible(one.host), since=visible(one.since), pid=+one.pid
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return Holder()


def this_process() -> Holder:
    """What a lease of this process says."""
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Holder(socket.gethostname(), os.getpid(), since, this_machine())


def this_machine() -> str | None:
    """One running kernel and one numbering of processes; None where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return None


def is_alive(pid: int) -> bool:
    """Whether there is such a process on this machine that has not ended."""
    try:
        os.kill(pid, 0)
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text("utf-8", "replace")
            .rpartition(")")[2]
            .split()
        )
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # of another user, or of a system without /proc
    return state[:1] not in (["Z"], ["X"])
