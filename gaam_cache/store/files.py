"""One way to write a file or folder whole, one way to read a file of unknown origin."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.errors import ConfigError, GaamError, StorageError
from gaam_cache.messages import visible

WRITE_BYTES = 2**16
"""Given to the system at once. Of larger pieces ext4 (Linux 6.18) makes large pages, for which a
virtual machine may ask its host: 0.4 to 2.5 s of processor time a GB, in these pieces 0.4."""
MAX_JSON_BYTES = 16 * 2**20
"""A plan names every class twice; no honest one comes near this."""
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""How file systems say so; a missing permission is EACCES."""
Parts = Sequence[bytes | memoryview]
"""Content that is too large to be joined in memory, in order."""
Content = bytes | Iterable[bytes | memoryview]
"""Of a file that is written."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_REFUSED_NOW = frozenset(
    {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
    | {errno.EINTR, errno.ETIMEDOUT, errno.ESTALE}
)
"""What the system says of us or of this moment, and not of the file."""
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "get the right to write there"),
    **dict.fromkeys(
        (errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "move the file away that is in the way"
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise 'ulimit -n'"),
}
_CLOSED = "Permission denied: the folder may not be written to"


@contextmanager
def storage_errors(path: Path, *, option: str = "--out") -> Iterator[None]:
    """Turn a refusal of the file system into one message.

    Args:
        path: what was to be written.
        option: of the command line, which names another folder.

    Raises:
        StorageError: disk full, no permission, read-only, a file where a folder must be.
    """
    try:
        yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "look at the disk and its mount")
        raise StorageError(
            f"cannot write '{path.name}'",
            found=error.strerror or str(error),
            where=str(path.parent.absolute()),
            hint=f"{remedy}, or choose another folder with {option}; "
            "what is finished is kept, and the same command goes on from there",
        ) from error


def raise_if_refused(error: BaseException, path: Path) -> None:
    """Tell a file that may not be read now from one that is damaged, which is made again.

    Raises:
        StorageError: no permission, too many open files, a server that does not answer.
    """
    if isinstance(error, OSError) and error.errno in _REFUSED_NOW:
        raise StorageError(
            f"cannot read '{path.name}'",
            found=error.strerror,
            where=str(path.parent.absolute()),
            hint="make it readable; nothing is known to be damaged",
        ) from error


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
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise ValueError(f"{path.name} is not a regular file") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise ValueError(f"{path.name} is not a regular file")


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


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        path: a regular file in UTF-8.
        max_bytes: a larger file is refused unread.

    Raises:
        OSError: it cannot be opened.
        ValueError: too large, not JSON, not an object, a key twice, NaN or Infinity.
        RecursionError: nested too deeply.
    """
    value = _STRICT.decode(read_bytes(path, max_bytes=max_bytes).decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is there twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


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
        for part in [content] if isinstance(content, bytes) else content:
            if len(part):
                view = memoryview(part).cast("B")
                for start in range(0, len(view), WRITE_BYTES):
                    file.write(view[start : start + WRITE_BYTES])
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


def check_folder(path: Path, *, option: str) -> None:
    """Refuse a place where no folder can be; what one that is there holds is not asked.

    Args:
        path: a folder, or where one is to be made, with those above it.
        option: of the command line, which names another.

    Raises:
        ConfigError: a file, or a link that leads nowhere, is there or above; a name that is too
            long; or nothing may be written there.
    """
    path = path.expanduser()
    if (state := _state(path)) is None:
        _check_above(path, "a folder", option)
    elif state != "a folder":
        raise _refused(path, "a folder, or nothing yet", state, path, option)
    elif not os.access(path, os.W_OK | os.X_OK):
        with suppress(OSError):  # who reads it says why not
            if not any(path.iterdir()):  # else all may be there that is wanted
                raise _refused(path, "a folder", _CLOSED, path, option)


def check_file(path: Path, *, option: str, special: bool = False) -> None:
    """Refuse a place where no file can be; a link means what it leads to.

    Args:
        path: a file, or where one is to be made, with the folders above it.
        option: of the command line, which names another.
        special: whether a pipe or device will do.

    Raises:
        ConfigError: as of ``check_folder``, with a folder where a file must be.
    """
    path = Path(os.path.realpath(path.expanduser()))
    state = _state(path)
    if state == "a pipe or device" and special:
        return
    if state not in (None, "a file"):
        raise _refused(path, "a file, or nothing yet", str(state), path, option)
    _check_above(path, "a file", option)


def _check_above(path: Path, what: str, option: str) -> None:
    """Refuse what cannot be made in the folders above."""
    path = path.absolute()
    longest = max(len(os.fsencode(part)) for part in path.parts)
    if longest > 255:  # bytes, as file systems have it
        found = f"a name too long, of {longest:,} bytes"
        raise _refused(path, f"names of at most 255 bytes for {what}", found, path, option)
    for folder in path.parents:
        state = _state(folder)
        if state == "a folder":
            if not os.access(folder, os.W_OK | os.X_OK):
                raise _refused(path, f"a place for {what}", _CLOSED, folder, option)
            return
        if state is not None:
            raise _refused(path, f"a place for {what}: folders above it", state, folder, option)


def _state(path: Path) -> str | None:
    """What is there, for people; None where nothing is."""
    try:
        path.lstat()
        if path.is_dir():
            return "a folder"
        if path.is_file():
            return "a file"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "a pipe or device" if path.exists() else "a link that leads nowhere"


def _refused(path: Path, expected: str, found: str, where: Path, option: str) -> ConfigError:
    return ConfigError(
        visible(f"nothing can be written to '{path}'"),
        expected=expected,
        found=visible(found),
        where=visible(str(where.absolute())),
        hint=("get the right to write there" if found is _CLOSED else "move it away")
        + f", or choose another {option}; nothing was done yet",
    )


def check_elsewhere(source: Path, out: Path) -> None:
    """Refuse a folder that lies in what is exported, or holds it, however it is written.

    Args:
        source: a run or a cache.
        out: the folder that is to be made.

    Raises:
        ConfigError: saying which; or no folder can be there.
    """
    real_source, real = (Path(os.path.realpath(one.expanduser())) for one in (source, out))
    if real_source in (real, *real.parents) or real in real_source.parents:
        raise ConfigError(
            "nothing can be exported into itself, or around itself",
            expected="a folder elsewhere",
            found=visible(str(real)),
            where=visible(str(real_source)),
            hint="name a folder that is not there yet, outside of what is exported",
        )
    check_folder(out, option="DIR")


@contextmanager
def whole_folder(
    out: Path, ours: Callable[[Path], bool], *, overwrite: bool = False
) -> Iterator[Path]:
    """A new folder beside ``out`` that takes its place when all went well, and else is removed.

    Args:
        out: the folder.
        ours: whether a folder is one of those that are made here.
        overwrite: replace it if it is; an empty one is free. What is replaced is moved aside
            first: between two renames there is no ``out``.

    Raises:
        ConfigError: something is in the way.
        StorageError: the file system refused.
    """
    _check_free(out, ours, overwrite)
    with storage_errors(out, option="DIR"):
        make_folder(out.absolute().parent)
        temporary, aside = (temporary_path(out.absolute().parent, out.name) for _ in range(2))
        try:
            temporary.mkdir()
            yield temporary
            for folder in [temporary, *(path for path in temporary.rglob("*") if path.is_dir())]:
                sync_folder(folder)
            _check_free(out, ours, overwrite)
            if out.is_dir():
                out.rename(aside)
            try:
                temporary.rename(out)
            except OSError:
                if aside.is_dir():
                    aside.rename(out)
                raise
            sync_folder(out.absolute().parent)
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _check_free(out: Path, ours: Callable[[Path], bool], overwrite: bool) -> None:
    with storage_errors(out, option="DIR"):
        if not out.is_symlink() and not out.exists():
            return
        folder = out.is_dir() and not out.is_symlink()
        if folder and not any(out.iterdir()):
            return
        replaceable = folder and ours(out)
    if not (overwrite and replaceable):
        raise ConfigError(
            f"'{out}' is there already; nothing was changed",
            expected="a folder that is new or empty",
            found="an earlier export" if replaceable else "something that no export made",
            where=str(out.absolute()),
            hint="--overwrite replaces it" if replaceable else "name another folder",
        )
