"""One trainer at a time per decoder and recipe: a lock that dies with its process."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gaam_cache.format.files import make_folder
from gaam_cache.format.refusals import storage_errors

POLL_SECONDS = 0.5
NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}


class Claim:
    """The right to train one decoder under one recipe in a folder of runs.

    A lock on a file whose name begins with a dot. The system drops it when its holder ends,
    however it ends: no lease, which a trainer that was stopped for a while could lose unseen. On a
    file system without locks every claim succeeds: work may then be done twice, but a run still
    appears by one rename.
    """

    def __init__(self, runs: Path, name: str) -> None:
        self._path = runs / f".{name}.lock"
        # a file in the place of a lock would outlive its process
        self._lock = FileLock(self._path, fallback_to_soft=False)

    @property
    def sole(self) -> bool:
        """Whether it is held and the file system has locks."""
        return self._lock.is_locked

    def take(self) -> bool:
        """Take it if nobody has it.

        Raises:
            StorageError: the file system refused.
        """
        with storage_errors(self._path, option="--runs"):
            make_folder(self._path.parent)
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                return False
            except OSError as error:
                if error.errno not in NO_LOCKS_HERE:
                    raise
                self._path.unlink(missing_ok=True)  # it says nothing here
        return True

    def wait(self, waiting: Callable[[], None]) -> None:
        """Take it as soon as nobody has it; ``waiting`` is called now and then."""
        while not self.take():
            waiting()
            time.sleep(POLL_SECONDS)

    def release(self) -> None:
        """Give it up; nothing happens if it is not held."""
        if self.sole:
            with suppress(OSError):  # a file that is left over locks nobody out
                self._path.unlink()  # before the lock is dropped, so that it is ours
            self._lock.release()

    def __enter__(self) -> Claim:
        """The claim, which is not taken yet."""
        return self

    def __exit__(self, *reason: object) -> None:
        self.release()
