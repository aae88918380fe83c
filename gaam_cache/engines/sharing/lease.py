"""Who works on what: announcements in a shared folder, so that work is not done twice.

A lease is a hint. Whoever publishes must do so exclusively; leases only make it rare that two do
the same. Nothing here ever stops the work: where the folder cannot be used, everything is free.

The leases of a name are a log of files ``NAME.0``, ``NAME.1``, ..., each created exclusively
(a hard link, which NFS has too) and changed by its owner alone. The last one counts. Who finds it
given back or stale creates the next number, and only one can. None is moved away, and none removed
before the work is done: so nobody who comes late takes down another lease than the one he judged.

Stale is what its owner has not renewed for a while by *our* monotonic clock: clocks of two machines
are never compared. On the same machine a dead process is stale at once.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.holder import Holder, content_of, parse, read_content, this_process
from gaam_cache.engines.sharing.processes import is_alive
from gaam_cache.format.files import write_file

RENEW_SECONDS = 10.0
SHORTEST_PATIENCE_SECONDS = 60.0
"""Renewals may come late: a disk that is busy, a client of NFS that has cached, a slow machine."""
PATIENCE_IN_WORK = 2.0
"""Times what a piece of work takes: taking over too early costs one of them."""
_ENTRY = re.compile(r"\.?(.+)\.[0-9]+(\.[0-9]+\.[0-9a-f]+\.tmp)?")
"""And the temporary files of those that were killed while they made one."""


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """The announcement that we work on ``name``."""

    owner: Leases
    name: str
    number: int | None
    """In the log of the name; None where the folder cannot be used."""

    def lost(self) -> bool:
        """Whether somebody found it stale and took over."""
        return self.number is not None and os.path.lexists(
            self.owner.path(self.name, self.number + 1)
        )

    def done(self) -> None:
        """The work is published: nobody needs the announcements of this name any more."""
        self.owner.forget(self)
        if self.number is not None:
            for number in range(self.number + 1):
                _remove(self.owner.path(self.name, number))

    def give_back(self) -> None:
        """The work is not done: the next who asks may have it at once."""
        self.owner.forget(self)
        if self.number is None:
            return
        path = self.owner.path(self.name, self.number)
        content = content_of(self.owner.us._replace(given_back=True))
        with suppress(OSError):
            write_file(path, content)


class Leases:
    """Our leases in a folder, renewed by a thread while this context lasts.

    Args:
        folder: made with the first lease; need not be usable.
        us: who we are.
        clock: seconds that only go forward.
    """

    def __init__(
        self, folder: Path, *, us: Holder | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.us = us or this_process()
        self.patience = SHORTEST_PATIENCE_SECONDS
        self._folder = folder
        self._clock = clock
        self._held: dict[Path, Lease] = {}
        self._seen: dict[Path, tuple[Any, float]] = {}
        self._alive: set[str] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def expect(self, seconds: float) -> None:
        """Say how long a piece of work takes, which says how long to wait for others."""
        self.patience = max(SHORTEST_PATIENCE_SECONDS, PATIENCE_IN_WORK * seconds)

    def take(self, name: str) -> Lease | Holder:
        """Announce work on ``name``, or say who does it.

        Whoever got a lease must look once more whether the work is done: it may have been finished
        a moment before.
        """
        try:
            self._folder.mkdir(exist_ok=True)
            number = 0
            while not self._create(self.path(name, number)):
                if holder := self._judge(name, number):
                    return holder
                number += 1
        except OSError:
            return Lease(self, name, None)
        lease = Lease(self, name, number)
        self._held[self.path(name, number)] = lease
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_until_closed, daemon=True)
            self._thread.start()
        return lease

    def is_alive(self, name: str) -> bool:
        """Whether the holder of a name that could not be taken was seen to be at work.

        That is a process of this machine, or one that has renewed its lease since we looked first.
        """
        return name in self._alive

    def any_alive(self, prefix: str) -> bool:
        """The same, of any of the names that begin so."""
        return any(name.startswith(prefix) for name in self._alive)

    def path(self, name: str, number: int) -> Path:
        """An entry of the log of a name."""
        return self._folder / f"{name}.{number}"

    def forget(self, lease: Lease) -> None:
        """Renew it no longer."""
        if lease.number is not None:
            self._held.pop(self.path(lease.name, lease.number), None)

    def renew(self) -> None:
        """Let others see that we are alive."""
        for path in tuple(self._held):
            try:
                os.utime(path, follow_symlinks=False)
            except OSError:
                continue  # removed, or a disk that refuses: at worst it becomes stale

    def clear(self, names: Collection[str]) -> None:
        """Remove the announcements of work that is done, whoever made them, and the folder."""
        try:
            entries = list(self._folder.iterdir())
        except OSError:
            return
        for path in entries:
            match = _ENTRY.fullmatch(path.name)
            if match and match[1] in names:
                _remove(path)
        with suppress(OSError):  # something of somebody else lies there
            self._folder.rmdir()

    def others_at_work(self, prefix: str) -> bool:
        """Whether anybody else has announced work on a name that begins so."""
        for path, name, number in self._entries():
            if name.startswith(prefix) and path not in self._held and number is not None:
                with suppress(OSError):
                    if self._judge(name, number) is not None:
                        return True
        return False

    def clear_dead(self) -> None:
        """Remove announcements of whoever is no longer at work, and the folder if it is empty."""
        for path, name, number in self._entries():
            with suppress(OSError):
                if number is None:
                    writer = int(path.name.split(".")[-3])
                    gone = writer == self.us.pid or not is_alive(writer, None)
                else:
                    gone = self._judge(name, number) is None
                if gone:
                    _remove(path)
        with suppress(OSError):
            self._folder.rmdir()

    def _entries(self) -> list[tuple[Path, str, int | None]]:
        """Path, name and number of all announcements; no number where one was cut off."""
        try:
            matches = [(path, _ENTRY.fullmatch(path.name)) for path in self._folder.iterdir()]
        except OSError:
            return []
        return [
            (path, match[1], None if match[2] else int(path.suffix[1:]))
            for path, match in matches
            if match is not None
        ]

    def close(self) -> None:
        """Give back what is held and stop renewing."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for lease in tuple(self._held.values()):
            lease.give_back()

    def _create(self, path: Path) -> bool:
        """Make an entry of the log; False where it is there."""
        return not os.path.lexists(path) and write_file(path, content_of(self.us), exclusive=True)

    def _judge(self, name: str, number: int) -> Holder | None:
        """Who holds an entry; None where the next number may be tried."""
        if os.path.lexists(self.path(name, number + 1)):
            return None
        path = self.path(name, number)
        try:
            status = path.lstat()
            content = read_content(path)
        except FileNotFoundError:
            return None  # the work is done
        holder = parse(content)
        if holder.given_back or self._is_dead(holder):
            return None
        now = self._clock()
        pulse = (status.st_ino, status.st_mtime_ns, content)
        last, since = self._seen.get(path, (None, now))
        if pulse != last:
            self._seen[path] = (pulse, now)
            if last is not None or self._is_of_here(holder):
                self._alive.add(name)
        elif now - since > self.patience:
            self._alive.discard(name)
            return None
        return holder

    def _is_of_here(self, holder: Holder) -> bool:
        return holder.machine is not None and holder.machine == self.us.machine

    def _is_dead(self, holder: Holder) -> bool:
        return self._is_of_here(holder) and not is_alive(holder.pid, holder.started)

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(RENEW_SECONDS):
            self.renew()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def _remove(path: Path) -> None:
    with suppress(OSError):  # a folder, or not ours to remove: it harms nobody
        path.unlink(missing_ok=True)
