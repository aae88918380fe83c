"""Bytes on disk: one way to write a file whole, one way to read a file of unknown origin."""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.errors import StorageError
from gaam_cache.format.pieces import pieces
from gaam_cache.format.refusals import storage_errors

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""How file systems say so; a missing permission is EACCES."""
Content = bytes | Iterable[bytes | memoryview]
"""Of a file that is written."""
Parts = Sequence[bytes | memoryview]
"""Content that is too large to be joined in memory, in order."""


class Identity(NamedTuple):
    """What the file system says about a file; another content has another."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """From the result of a stat."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading: no symbolic link is followed, no pipe waited for.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is not a regular file.
    """
    if path.is_symlink():
        raise ValueError(f"{path.name} is a symbolic link")
    # the flags hold even where the file is swapped after the check above
    file = os.fdopen(_open_waiting_for_nothing(path), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path.name} is not a regular file")
    return file


def _open_waiting_for_nothing(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link after all; a socket
            raise ValueError(f"{path.name} is not a regular file") from error
        raise


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """All of a regular file.

    Raises:
        OSError: it cannot be read.
        ValueError: not a regular file, or larger than ``max_bytes``, which is refused unread.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"{path.name} has {size:,} bytes, at most {max_bytes:,} make sense")
        return file.read(size)


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys, without white space, in ASCII: the same bytes for the same value."""
    return _CANONICAL.encode(value).encode()


def write_file(
    path: Path, content: Content, *, exclusive: bool = False, option: str = "--out"
) -> bool:
    """Make ``path`` with its whole content; no reader ever sees a part of it.

    Args:
        path: its folder is made if need be.
        content: all of it.
        exclusive: leave a file alone that is there already, whoever is quicker. By a hard link,
            the one exclusive step; otherwise by a rename, which replaces.
        option: of the command line, which names another folder.

    Returns:
        False where ``exclusive`` found a file.

    Raises:
        StorageError: the file system refused.
    """
    with storage_errors(path, option=option):
        make_folder(path.parent)
        with temporary_file(path.parent, path.name, content) as temporary:
            if not exclusive:
                temporary.rename(path)
            else:
                try:
                    link(temporary, path)
                except FileExistsError:
                    return False
        sync_folder(path.parent)
    return True


def temporary_path(folder: Path, name: str) -> Path:
    """A name for what is on its way to ``name`` or away from it; nobody else makes the same."""
    return folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


@contextmanager
def temporary_file(folder: Path, name: str, content: Content) -> Iterator[Path]:
    """A synced file that is gone afterwards, unless it was renamed."""
    temporary = temporary_path(folder, name)
    try:
        write_synced(temporary, content)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_synced(path: Path, content: Content) -> None:
    """Make a file that is not there yet, in a folder that nobody else looks into, and sync it."""
    with path.open("xb") as file:
        for piece in pieces([content] if isinstance(content, bytes) else content):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def link(temporary: Path, path: Path) -> None:
    """A hard link ``path`` to ``temporary``, which has no other.

    Raises:
        OSError: the file system refused; FileExistsError where ``path`` is there.
        StorageError: there are no hard links here.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        # over NFS the answer may have got lost, and the question been asked again
        if temporary.stat().st_nlink != 2:
            raise
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        raise StorageError(
            "the file system has no hard links",
            expected="hard links: the one step that publishes a file whole, and only once",
            found=error.strerror,
            where=str(path.parent.absolute()),
            hint="choose a folder on another file system with --out (ext4, xfs, btrfs and NFS "
            "have them); a finished cache can be copied anywhere",
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and sync the entry."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
