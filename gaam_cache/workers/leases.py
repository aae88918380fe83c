"""Leases: files that announce which worker does which piece of work.

A lease is a hint. It makes it rare that two workers do the same work; publishing is
exclusive in any case. A worker creates the file ``NAME.lease`` exclusively (by a hard
link, which NFS has too, or under a lock), writes its name into it and touches it every
ten seconds. A lease is stale when its worker did not touch it for ninety seconds by
*our* monotonic clock. It is stale at once if its process ran on this machine and has
ended.
"""

from __future__ import annotations

import json
import logging
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
from gaam_cache.store.files import regular_file_status, remove_lock, write_file

logger = logging.getLogger(__name__)
RENEW_SECONDS = 10.0  # time between two renewals of our leases
PATIENCE_SECONDS = 90.0
"""Time without a renewal after which a lease is stale.

Renewals may be seen late: a busy disk, a slow machine, or a client of NFS, which may
show an old state of a file for a minute.
"""
MAX_LEASE_BYTES = 4096  # bytes that are read of a lease file, at most
SUFFIX = ".lease"
LEASE_FOLDER = "leases"  # name of the folder of leases in a cache


class Holder(NamedTuple):
    """The process that holds a lease, as far as the file names it."""

    host: str = "an unknown machine"
    pid: int = 0  # number of the process; 0 if the file names none
    since: str = ""  # when it began, in UTC by its own clock; for people
    machine: str | None = None  # ``this_machine()`` of the process; None if unknown
    token: str = ""  # unique to this lease

    @property
    def is_dead(self) -> bool:
        """Whether the process ran on this machine and has ended.

        False for a process of another machine: nobody here can tell.
        """
        if self.machine is None or self.machine != this_machine():
            return False
        return not is_alive(self.pid)

    def in_words(self) -> str:
        """Name the machine, the process and its beginning, as far as they are known."""
        words = self.host
        if self.pid:
            words += f", process {self.pid}"
        if self.since:
            words += f", since {self.since}"
        return words


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A lease of this process: a file that announces that it does the work ``name``."""

    leases: Leases  # the leases of this process in the same folder
    name: str
    token: str  # unique to this lease, as in its file

    def is_ours(self) -> bool:
        """Whether the file still holds our token: no other worker took over."""
        return _read_holder(self.leases.path(self.name)).token == self.token

    def release(self) -> None:
        """Give the lease up: remove its file, if that still holds our token.

        This is called when the work is published or given up. If another worker took
        the work over, the file is that worker's lease and stays.
        """
        self.leases.own_leases.pop(self.name, None)
        if self.is_ours():
            with suppress(OSError):
                self.leases.path(self.name).unlink()


class _FileState(NamedTuple):
    """What changes in a lease's file when the lease is renewed or replaced."""

    inode: int
    changed_ns: int
    """When the file was touched, by the clock of its disk. It is never compared with
    our clock: only whether it changes matters."""


class _Sighting(NamedTuple):
    """Another worker's lease, as we saw it last."""

    file_state: _FileState
    first_seen: float  # when we first saw the file in this state, by our clock
    is_known_alive: bool
    """Whether we know that the worker is alive: it runs on this machine, or we saw its
    file change."""


class Leases:
    """The leases of this process in a folder; "we" and "our" stand for this process.

    A lease is a file that announces that a process does a piece of work. A thread
    renews our leases while the context is open. A lease that was not renewed for long,
    or whose process has ended, is stale: another worker may take over the work.

    Attributes:
        holder: this process, as its leases name it.
        own_leases: name of leased work -> our lease.
    """

    def __init__(
        self,
        folder: Path,
        *,
        holder: Holder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to take leases; nothing is written yet.

        Args:
            folder: the shared folder of the leases.
            holder: the process that holds our leases; None for this process.
            clock: returns seconds that never go back.
        """
        self.holder = holder or this_process()
        self.own_leases: dict[str, Lease] = {}
        self._folder = folder
        self._clock = clock
        self._sightings: dict[str, _Sighting] = {}
        """Name of another worker's lease -> how we saw it last, to notice if it is not
        renewed any more."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, name: str) -> Lease | Holder:
        """Lease the work ``name``, or return the process that holds it.

        After taking a lease, check again whether the work is done: another worker may
        have finished it a moment before.

        Returns:
            Our lease; or the other process, if its lease is not stale.
        """
        token = secrets.token_hex(8)
        holder_with_token = self.holder._replace(token=token)
        content = json.dumps(holder_with_token._asdict()).encode()
        # a stale lease of another worker is removed, and then we try again
        while not self._write(name, content):
            holder = self._active_holder(name)
            if holder is not None:
                return holder
            logger.info("the lease of %s is stale and is removed", name)
            self._remove_stale_lease(name)

        logger.debug("leased: %s", name)
        lease = Lease(self, name, token)
        self.own_leases[name] = lease
        # the first lease starts the thread that renews all of them
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._renew_until_closed, daemon=True
            )
            self._thread.start()
        return lease

    def names_at_work(self) -> set[str]:
        """Names of work that other workers do at this time.

        A worker counts only if we know that it is alive. So the first call cannot tell
        for the workers of other machines, and leaves out their work.
        """
        names = set()
        for name in self._names_of_others():
            # a lease that we see for the first time may be that of a dead worker
            is_held = self._active_holder(name) is not None
            if is_held and self._sightings[name].is_known_alive:
                names.add(name)
        return names

    def is_other_worker_at(self, prefix: str) -> bool:
        """Whether another worker holds work whose name begins with ``prefix``.

        A stale lease does not count, but that of a worker that died just now does.
        """
        for name in self._names_of_others():
            if name.startswith(prefix) and self._active_holder(name) is not None:
                return True
        return False

    def remove_stale_leases(self) -> None:
        """Remove stale leases, and the folder if it is empty then.

        This only tidies up, so that a failure is ignored.
        """
        with suppress(OSError):
            for name in self._names_of_others():
                if self._active_holder(name) is None:
                    self._remove_stale_lease(name)
            # Other workers may take leases meanwhile: rmdir then fails, and the folder
            # stays.
            if not _leased_names(self._folder):
                # the file of the lock would keep the folder from being empty
                remove_lock(self._folder)
            self._folder.rmdir()

    def path(self, name: str) -> Path:
        """The file of a lease."""
        return self._folder / f"{name}{SUFFIX}"

    def _write(self, name: str, content: bytes) -> bool:
        """Create the file of a lease; False if the name is leased already."""
        while True:
            # A worker that finishes the last piece of work may remove the folder at
            # this moment: try again, which creates the folder.
            with suppress(FileNotFoundError):
                return write_file(self.path(name), content, exclusive=True)

    def _renew_until_closed(self) -> None:
        """Touch the files of our leases every ten seconds; this runs in a thread."""
        while not self._closing.wait(RENEW_SECONDS):
            for lease in tuple(self.own_leases.values()):
                if lease.is_ours():
                    # if this fails the lease becomes stale, and work is done twice
                    with suppress(OSError):
                        os.utime(self.path(lease.name), follow_symlinks=False)

    def _names_of_others(self) -> list[str]:
        """Names with a lease that is not ours, whether or not it is stale."""
        return [
            name for name in _leased_names(self._folder) if name not in self.own_leases
        ]

    def _active_holder(self, name: str) -> Holder | None:
        """The process that holds the lease of a name, and seems to be alive.

        A lease is a file that announces that a process does some work. The process
        renews it as long as it lives; a lease that was not renewed is stale.

        Returns:
            None if the lease is stale or there is none.
        """
        path = self.path(name)
        now = self._clock()
        try:
            status = path.lstat()
        except OSError:
            # there is no file: the worker has released the lease
            self._sightings.pop(name, None)
            return None

        holder = _read_holder(path)
        file_state = _FileState(status.st_ino, status.st_mtime_ns)
        sighting = self._observe(name, holder, file_state, now)
        # stale: its process has ended, or has not renewed it for too long by our clock
        seconds_unchanged = now - sighting.first_seen
        if holder.is_dead or seconds_unchanged > PATIENCE_SECONDS:
            return None
        return holder

    def _observe(
        self, name: str, holder: Holder, file_state: _FileState, now: float
    ) -> _Sighting:
        """Record how we see another worker's lease now.

        Args:
            name: name of the leased work.
            holder: the process that the lease names.
            file_state: of the lease's file; a renewal changes it.
            now: time of our clock.

        Returns:
            What is recorded: a new sighting; or the earlier one if the file has not
            changed, so that its time is that of the first sight.
        """
        last_sighting = self._sightings.get(name)
        if last_sighting is not None and last_sighting.file_state == file_state:
            return last_sighting

        # The file has changed since we last looked: its worker lives.
        has_changed = last_sighting is not None
        # ``is_dead`` sees at once whether a process of this machine has ended. So one
        # that has not ended needs no second look.
        is_on_this_machine = (
            holder.machine is not None and holder.machine == self.holder.machine
        )
        is_known_alive = has_changed or is_on_this_machine
        sighting = _Sighting(file_state, first_seen=now, is_known_alive=is_known_alive)
        self._sightings[name] = sighting
        return sighting

    def _remove_stale_lease(self, name: str) -> None:
        """Remove the file of a stale lease, if it had a file when we looked.

        Call this right after ``_active_holder`` has returned None for the name.
        """
        # ``_active_holder`` has recorded the file that it saw, or has dropped the
        # record if there was no file. A file that is there in the second case is a new
        # lease, of a worker that has just begun.
        saw_stale_file = name in self._sightings
        if saw_stale_file:
            self.path(name).unlink(missing_ok=True)

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *reason: object) -> None:
        """Release all leases and stop renewing."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for lease in tuple(self.own_leases.values()):
            lease.release()


@dataclass(frozen=True, slots=True)
class Holding:
    """A leased piece of work, as ``gaam inspect`` shows it.

    The names of the fields are keys of its JSON.
    """

    name: str  # of the shard, or of the seeds
    host: str  # name of the machine of the worker
    process: int  # number of the worker's process there
    since: str  # when the process began, in UTC by its own clock
    dead: bool  # whether the process ran on this machine and has ended

    def in_words(self) -> str:
        """Name the process, and say whether it has ended."""
        words = Holder(self.host, self.process, self.since).in_words()
        if self.dead:
            words += ", which has ended: the next worker does its work again"
        return words


def holdings(folder: Path) -> list[Holding]:
    """All leased work in a folder, sorted by name; nothing if there is no folder.

    A lease is a file that names the process that does a piece of work. Leases of
    processes that have ended are included; a file that names no process is left out.
    """
    leased_work = []
    for name in _leased_names(folder):
        holder = _read_holder(folder / f"{name}{SUFFIX}")
        if holder.pid:
            leased_work.append(
                Holding(
                    name=name,
                    host=holder.host,
                    process=holder.pid,
                    since=holder.since,
                    dead=holder.is_dead,
                )
            )
    return leased_work


def _leased_names(folder: Path) -> list[str]:
    """Names of all leases in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(path.stem for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return []


def _read_holder(path: Path) -> Holder:
    """The process that a lease file names.

    Returns:
        A ``Holder`` with all defaults if the file is missing or damaged.
    """
    try:
        # reading a pipe or a device would never end
        regular_file_status(path)
        content = json.loads(path.read_bytes()[:MAX_LEASE_BYTES])
        # another version of gaam may write fewer or more values
        values = {name: content[name] for name in Holder._fields if name in content}
        holder = Holder(**values)
        if not isinstance(holder.pid, int):
            return Holder()
        # these raise an error if they are no texts
        return holder._replace(host=visible(holder.host), since=visible(holder.since))
    except (OSError, ValueError, TypeError, AttributeError):
        return Holder()


def this_process() -> Holder:
    """This process, as its leases name it; it counts as begun now."""
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Holder(socket.gethostname(), os.getpid(), since, this_machine())


def this_machine() -> str | None:
    """Name this machine, its boot and its space of process numbers.

    Two processes with the same result see each other under their process numbers. This
    does not hold for two containers on one machine, which have spaces of their own.

    Returns:
        None if the system does not show all of this.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        process_numbers = Path("/proc/self/ns/pid").readlink()
        return f"{socket.gethostname()} {boot} {process_numbers}"
    except (OSError, ValueError):
        return None


def is_alive(pid: int) -> bool:
    """Whether this machine has a process of that number, and it has not ended.

    If the system does not tell, the process counts as alive.
    """
    try:
        # the signal 0 is not sent, but fails if there is no such process
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # another user's process, or a system without /proc
        return True
    # the state follows the name of the program, which stands in parentheses and may
    # itself hold any character
    _, _, after_name = status.rpartition(")")
    state = after_name.split()[:1]
    # a process that has ended may stay in the list for a while: zombie, or dead
    return state not in (["Z"], ["X"])
