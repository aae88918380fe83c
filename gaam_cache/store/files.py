"""One way to write a file or folder whole, to read one of unknown origin, and to hash both.

Whatever this project writes carries a digest of all its content, or is named with size and SHA-256
in a file that does.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from gaam_cache.common.errors import ConfigError, OutOfReachError, StorageError

MAX_JSON_BYTES = 2**30  # no honest file comes near this
DAMAGE = (
    *(FileNotFoundError, NotADirectoryError, RecursionError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What is raised by a file that is not as it was written; another OSError says that it cannot be
read now, and nothing of what it holds."""
SEAL = "sha256_of_this"  # the key of a JSON object under which its own digest lies
LOCK_FILE = (
    ".lock.tmp"  # in a folder without hard links: who holds its lock may publish there
)
NO_HARD_LINKS = frozenset(
    (
        errno.EPERM,
        errno.EACCES,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EMLINK,
    )
)
"""What file systems answer that have none: FAT and exFAT, FUSE, shares of Windows."""
POINTERS = (b"version https://git-lfs.github.com/", b"/annex/objects/")
LONGEST_POINTER = 64  # bytes of its beginning that tell one
NO_SYNC = frozenset((errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP))
"""What file systems answer that cannot sync a folder; they have nothing more to offer."""


class ElsewhereError(FileNotFoundError):
    """In the place of a file stands what means one that is elsewhere, and maybe whole there."""

    @classmethod
    def from_link(cls, path: Path) -> Self:
        return cls(
            f"{path.name} is a link to '{path.readlink()}', and nothing is there"
        )

    def refusal(self, what: str, path: Path) -> OutOfReachError:
        """What is said of the cache or run whose file this is."""
        return OutOfReachError(
            f"{what} is out of reach",
            found=str(self),
            where=str(path.absolute()),
            hint="bring back what it means: mount its disk, or fetch it "
            "('hf download', 'git lfs pull', 'git annex get', 'dvc pull')",
        )


def moved_away_error(what: str, folder: Path) -> OutOfReachError:
    """The refusal of a cache or run whose folder was there, and is no longer."""
    return OutOfReachError(
        f"the {what} is no longer where it was",
        found="no such folder",
        where=str(folder),
        hint="bring it back, or name the folder that it is in now",
    )


def short_digest(digest: str) -> str:
    """What people read of a hash: 48 bits, which two of a million caches share in 2 of 1,000."""
    return digest[:12]


def digest_of(*parts: bytes | memoryview) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_parts(parts: Iterable[bytes]) -> str:
    """SHA-256 over parts in order, each preceded by its length in bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def fingerprint(fields: Any) -> str:
    """SHA-256 of JSON with sorted keys, without white space, in ASCII."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return digest_of(text.encode())


def sealed_text(content: dict[str, Any]) -> str:
    """The text of a JSON file that holds the SHA-256 of the rest of its content."""
    sealed = content | {SEAL: fingerprint(content)}
    return json.dumps(sealed, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """What ``sealed_text`` was given, from the parsed file; ValueError where it is another."""
    if SEAL not in content:
        raise ValueError(f"no '{SEAL}'")
    rest = {key: value for key, value in content.items() if key != SEAL}
    if content[SEAL] != fingerprint(rest):
        raise ValueError(f"its content is not what '{SEAL}' says: it was changed")
    return rest


def regular_file(path: Path) -> os.stat_result:
    """Size and times of a regular file, or of the one that a link leads to.

    Raises:
        ElsewhereError: a link, or in a folder that is one, and nothing is where that leads.
        ValueError: a folder, a device, a pipe, or a link to one of these.
        OSError: no such file, or it cannot be reached now.
    """
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        # its folder may be a link, too
        for place in (path, path.parent):
            if place.is_symlink() and not place.exists():
                raise ElsewhereError.from_link(place) from error
        raise
    if not stat.S_ISREG(status.st_mode):
        leads = f", but a link to '{path.readlink()}'" if path.is_symlink() else ""
        raise ValueError(f"{path.name} is no regular file{leads}")
    return status


def check_size(path: Path, size: int) -> None:
    """Refuse a file that is not as large as it must be; one of ``DAMAGE``."""
    found = regular_file(path).st_size
    if found != size:
        check_fetched(path)
        raise ValueError(f"{path.name} has {found:,} bytes, and {size:,} were written")


def check_fetched(path: Path) -> None:
    """Refuse what Git LFS and git-annex keep in the place of a file that was not fetched."""
    with path.open("rb") as file:
        start = file.read(LONGEST_POINTER)
    if start.startswith(POINTERS):
        tool = "Git LFS" if start.startswith(POINTERS[0]) else "git-annex"
        raise ElsewhereError(
            f"{path.name} is a pointer of {tool}: the file was not fetched"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a regular file of JSON; else one of ``DAMAGE``."""
    size = regular_file(path).st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(f"{path.name} has {size:,} bytes")
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        check_fetched(path)
        raise
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def write_file(path: Path, content: bytes, *, exclusive: bool = False) -> bool:
    """Make ``path`` with its whole content, and its folder; no reader ever sees a part of it.

    It replaces what is there, a link too, which is never written through; ``exclusive`` leaves
    that alone and returns False.
    """
    make_folder(path.parent)
    temporary = temporary_path(path.parent, path.name)
    try:
        write_synced(temporary, content)
        if not exclusive:
            temporary.rename(path)
        elif not _publish(temporary, path):
            return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _publish(temporary: Path, path: Path) -> bool:
    """Give a whole file its name, unless something has that: the one exclusive step."""
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
    with _locked(path.parent):
        if os.path.lexists(path):
            return False
        temporary.rename(path)
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; the system gives it back when its holder dies."""
    import fcntl  # not on every system, and needed to write alone

    # the file stays until all is published: whoever removed it now would let another in beside
    # those who wait for it
    with (folder / LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(
                "nothing can be published in this folder",
                expected="a file system with hard links, or with locks",
                found=f"neither: {error.strerror}",
                where=str(folder),
                hint="choose a folder of another file system, and copy it there when it is done",
            ) from error
        yield


def remove_lock(folder: Path) -> None:
    """Tidy up a folder in which everything is published, so that nobody can win any more."""
    with suppress(OSError):
        (folder / LOCK_FILE).unlink()


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
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, as far as its file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def check_writable(path: Path, *, option: str, file: bool = False) -> None:
    """Refuse, before anything is done, a place where no folder (or file) can be made or written to.

    A folder that holds something may be all that is wanted, whether or not it can be written to.
    """
    given, path = path, Path(os.path.realpath(path.expanduser()))
    if not file and path.is_dir() and any(path.iterdir()):
        return
    found, places = None, path.parents if file else (path, *path.parents)
    there = next(one for one in places if os.path.lexists(one))
    if file and path.exists() and not path.is_file():
        found = "it is no file"
    elif not file and not path.exists() and given.is_symlink():
        found = f"'{given}' is a link to it, and nothing is there"
    elif not there.is_dir():
        found = f"'{there}' is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        found = f"Permission denied at '{there}'"
    if found:
        hint = f"choose another {option}; nothing was done yet"
        raise ConfigError(f"nothing can be written to '{path}'", found=found, hint=hint)


@contextmanager
def replace_folder(
    source: Path, out: Path, ours: Callable[[Path], bool], *, overwrite: bool = False
) -> Iterator[Path]:
    """A new folder that takes the place of ``out`` when all went well, and else is removed.

    It lies neither in nor around ``source``, and replaces only what is ``ours``, where asked to.
    """
    source, out = (Path(os.path.realpath(one.expanduser())) for one in (source, out))
    if source in (out, *out.parents) or out in source.parents:
        what = "nothing can be exported into itself, or around itself"
        raise ConfigError(what, found=str(out), where=str(source))
    check_writable(out, option="DIR")
    if (taken := out.is_dir() and any(out.iterdir())) and not (overwrite and ours(out)):
        hint = "name another folder, or replace an earlier export by --overwrite"
        raise ConfigError(f"'{out}' is there already; nothing was changed", hint=hint)
    make_folder(out.parent)
    temporary = temporary_path(out.parent, out.name)
    temporary.mkdir()
    try:
        yield temporary
        if taken:
            shutil.rmtree(out)
        temporary.rename(out)
        sync_folder(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
