"""One trainer at a time per decoder and recipe: a lock that dies with its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from gaam_cache.format.files import make_folder, storage_errors

POLL_SECONDS = 0.5
FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}


class Claim:
    """The right to train one decoder under one recipe in a folder of runs.

    An advisory lock (``flock``) on a file whose name begins with a dot. The system drops it when
    its holder ends, however it ends. On a file system without locks every claim succeeds: work may
    then be done twice, but a run still appears by one rename.

    Attributes:
        sole: whether it is held and the file system has locks.
    """

    def __init__(self, runs: Path, name: str) -> None:
        self._path = runs / f".{name}.lock"
        self._file = -1
        self.sole = False

    def take(self) -> bool:
        """Take it if nobody has it.

        Raises:
            StorageError: the file system refused.
        """
        with storage_errors(self._path, option="--runs"):
            make_folder(self._path.parent)
            while True:
                file = os.open(self._path, FLAGS, 0o666)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.sole = True
                except OSError as error:
                    if error.errno not in NO_LOCKS_HERE:
                        os.close(file)
                        if isinstance(error, BlockingIOError):
                            return False
                        raise
                if self._is_at_path(file):
                    self._file = file
                    return True
                os.close(file)  # removed by its last holder after we had opened it

    def wait(self, waiting: Callable[[], None]) -> None:
        """Take it as soon as nobody has it; ``waiting`` is called now and then."""
        while not self.take():
            waiting()
            time.sleep(POLL_SECONDS)

    def _is_at_path(self, file: int) -> bool:
        try:
            there, ours = self._path.stat(), os.fstat(file)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Give it up; nothing happens if it is not held."""
        if self._file >= 0:
            with contextlib.suppress(OSError):  # a file that is left over locks nobody out
                self._path.unlink()  # before the lock is dropped, so that it is ours
            os.close(self._file)
            self._file = -1
            self.sole = False

    def __enter__(self) -> Claim:
        """The claim, which is not taken yet."""
        return self

    def __exit__(self, *reason: object) -> None:
        self.release()
