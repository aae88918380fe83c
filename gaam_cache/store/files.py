"""One way to write a file or folder whole, one way to read a file of unknown origin."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, GaamError, StorageError

MAX_JSON_BYTES = 16 * 2**20
"""A plan names every class twice; no honest one comes near this."""
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""How file systems say so; a missing permission is EACCES."""
_REFUSED_NOW = {
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    *(errno.ETIMEDOUT, errno.ESTALE),
}
"""What the system says of us or of this moment, and not of the file."""


@contextmanager
def storage_errors(path: Path, *, option: str = "--out") -> Iterator[None]:
    """Turn a refusal to write ``path`` into a StorageError that names the option to change."""
    try:
        yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except OSError as error:
        raise StorageError(
            f"cannot write '{path.name}'",
            found=error.strerror or str(error),
            where=str(path.parent.absolute()),
            hint=f"make that possible, or choose another folder with {option}; "
            "what is finished is kept, and the same command goes on from there",
        ) from error


def raise_if_refused(error: BaseException, path: Path) -> None:
    """StorageError where a file may not be read now: it is no damaged one, to be made again."""
    if isinstance(error, OSError) and error.errno in _REFUSED_NOW:
        raise StorageError(
            f"cannot read '{path.name}'",
            found=error.strerror,
            where=str(path.parent.absolute()),
            hint="make it readable; nothing is known to be damaged",
        ) from error


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; ValueError where it is a pipe or folder, OSError where a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """All of a regular file; ValueError where it is larger, which is refused unread."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"{path.name} has {size:,} bytes, at most {max_bytes:,} make sense")
        return file.read(size)


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object in a regular file of JSON in UTF-8; else OSError, ValueError, RecursionError."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) != len(pairs):
            raise ValueError("a key is there twice")
        return found

    content = read_bytes(path, max_bytes=max_bytes)
    value = json.loads(content.decode("utf-8"), object_pairs_hook=unique)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def write_file(
    path: Path, content: bytes, *, exclusive: bool = False, option: str = "--out"
) -> bool:
    """Make ``path`` with its whole content, and its folder; no reader ever sees a part of it.

    ``exclusive`` leaves a file alone that is there already, whoever is quicker, and returns False:
    by a hard link, the one exclusive step; otherwise by a rename, which replaces.
    """
    with storage_errors(path, option=option):
        make_folder(path.parent)
        temporary = temporary_path(path.parent, path.name)
        try:
            write_synced(temporary, content)
            if exclusive:
                os.link(temporary, path)
            else:
                temporary.rename(path)
        except FileExistsError:
            return False
        except OSError as error:
            if not exclusive or error.errno not in _NO_HARD_LINKS:
                raise
            raise StorageError(
                "the file system has no hard links",
                expected="hard links: the one step that publishes a file whole, and only once",
                found=error.strerror,
                where=str(path.parent.absolute()),
                hint="choose a folder on another file system with --out (ext4, xfs, btrfs and NFS "
                "have them); a finished cache can be copied anywhere",
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    return True


def temporary_path(folder: Path, name: str) -> Path:
    """A name for what is on its way to ``name`` or away from it; nobody else makes the same."""
    return folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def write_synced(path: Path, content: bytes) -> None:
    """Make a file that is not there yet, in a folder that nobody else looks into, and sync it."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


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


def check_folder(path: Path, *, option: str) -> None:
    """Refuse, before anything is done, a place where no folder can be made or written to.

    One that holds something may be all that is wanted, whether or not it can be written to.
    """
    path = path.expanduser().absolute()
    if not (path.is_dir() and os.access(path, os.R_OK) and any(path.iterdir())):
        _check_writable(path, path, option)


def check_file(path: Path, *, option: str, special: bool = False) -> None:
    """The same of a file; a link means what it leads to, ``special`` allows a pipe or device."""
    path = Path(os.path.realpath(path.expanduser()))
    if not special or path.is_dir() or path.is_file() or not path.exists():
        _check_writable(path, path.parent, option)


def _check_writable(path: Path, folder: Path, option: str) -> None:
    # the folder, or the nearest one above it that is there
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    found = None
    if path != folder and path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "no file"
    elif not there.is_dir():
        found = f"'{there}' is a file, no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        found = f"Permission denied at '{there}'"
    if found:
        hint = f"choose another {option}; nothing was done yet"
        raise ConfigError(f"nothing can be written to '{path}'", found=found, hint=hint)


@contextmanager
def whole_folder(
    source: Path, out: Path, ours: Callable[[Path], bool], *, overwrite: bool = False
) -> Iterator[Path]:
    """A new folder beside ``out`` that takes its place when all went well, and else is removed.

    It may lie neither in ``source``, which is exported, nor around it. What is there already is
    replaced only where that is asked for and it is one of ``ours``.
    """
    source, out = (Path(os.path.realpath(one.expanduser())) for one in (source, out))
    if source in (out, *out.parents) or out in source.parents:
        raise ConfigError(
            "nothing can be exported into itself, or around itself",
            expected="a folder elsewhere",
            found=str(out),
            where=str(source),
        )
    check_folder(out, option="DIR")
    temporary = temporary_path(out.parent, out.name)
    with storage_errors(out, option="DIR"):
        taken = out.is_dir() and any(out.iterdir())
        if taken and not (overwrite and ours(out)):
            raise ConfigError(
                f"'{out}' is there already; nothing was changed",
                expected="a folder that is new or empty",
                hint="name another folder, or replace an earlier export by --overwrite",
            )
        make_folder(out.parent)
        try:
            temporary.mkdir()
            yield temporary
            if taken:
                shutil.rmtree(out)
            temporary.rename(out)
            sync_folder(out.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
