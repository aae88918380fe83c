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
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.entries import entries_of, remove
from gaam_cache.engines.sharing.holder import Holder, content_of, parse, read_content, this_process
from gaam_cache.engines.sharing.processes import is_alive
from gaam_cache.format.files import write_file

RENEW_SECONDS = 10.0
SHORTEST_PATIENCE_SECONDS = 60.0
"""Renewals may come late: a disk that is busy, a client of NFS that has cached, a slow machine."""
PATIENCE_IN_WORK = 2.0
"""Times what a piece of work takes: taking over too early costs one of them."""


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
                remove(self.owner.path(self.name, number))

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

    def alive(self) -> set[str]:
        """Names that others hold now who were seen to be at work.

        Those are processes of this machine, and whoever has renewed since we looked first.
        """
        names = set()
        for _, name, number in self._of_others():
            with suppress(OSError):
                if self._judge(name, number) is not None and name in self._alive:
                    names.add(name)
        return names

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
        for entry in entries_of(self._folder):
            if entry.name in names:
                remove(entry.path)
        with suppress(OSError):  # something of somebody else lies there
            self._folder.rmdir()

    def others_at_work(self, prefix: str) -> bool:
        """Whether anybody else has announced work on a name that begins so."""
        for _, name, number in self._of_others():
            if name.startswith(prefix):
                with suppress(OSError):
                    if self._judge(name, number) is not None:
                        return True
        return False

    def clear_dead(self) -> None:
        """Remove announcements of whoever is no longer at work, and the folder if it is empty.

        Those of a name go together, or not at all: where one that counts follows, nobody may find
        the numbers before it free.
        """
        entries = entries_of(self._folder)
        last: dict[str, int] = {}
        for entry in entries:
            if entry.maker is None:
                last[entry.name] = max(entry.number, last.get(entry.name, 0))
        for entry in entries:
            with suppress(OSError):
                if entry.maker is not None:
                    gone = entry.maker == self.us.pid or not is_alive(entry.maker, None)
                else:
                    gone = self._judge(entry.name, last[entry.name]) is None
                if gone:
                    remove(entry.path)
        with suppress(OSError):
            self._folder.rmdir()

    def _of_others(self) -> list[tuple[Path, str, int]]:
        """Whole announcements that are not ours: path, name and number."""
        found = entries_of(self._folder)
        mine = self._held
        return [(e.path, e.name, e.number) for e in found if e.maker is None and e.path not in mine]

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
        if holder.given_back or holder.is_dead(self.us.machine):
            self._alive.discard(name)
            return None
        now = self._clock()
        pulse = (status.st_ino, status.st_mtime_ns, content)
        last, since = self._seen.get(path, (None, now))
        if pulse != last:
            self._seen[path] = (pulse, now)
            if last is not None or holder.is_of(self.us.machine):
                self._alive.add(name)
        elif now - since > self.patience:
            self._alive.discard(name)
            return None
        return holder

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(RENEW_SECONDS):
            self.renew()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
