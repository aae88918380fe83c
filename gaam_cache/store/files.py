"""Write files and folders completely or not at all, read JSON with care, hash both.

Every file that gaam writes carries a digest of its own content, or another file with
such a digest records its size and SHA-256.
"""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from gaam_cache.common.errors import ConfigError, OutOfReachError, StorageError

# No honest file comes near this size.
MAX_JSON_BYTES = 2**30

DAMAGE = (
    FileNotFoundError,
    NotADirectoryError,
    RecursionError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)
"""Errors of a file whose content is not what gaam wrote. Any other OSError means that
the file cannot be read now; it says nothing about the content."""

SEAL = "sha256_of_this"
"""Key under which a JSON object holds its own digest."""

LOCK_FILE = ".lock.tmp"
"""Only the holder of its lock publishes in a folder without hard links."""

NO_HARD_LINKS = frozenset(
    {
        errno.EPERM,
        errno.EACCES,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EMLINK,
    }
)
"""Errors of file systems without hard links: FAT and exFAT, FUSE, Windows shares."""

NO_SYNC = frozenset({errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""Errors of file systems that cannot sync a folder and offer nothing better."""

# The beginnings of the pointer files of Git LFS and git-annex.
POINTERS = (b"version https://git-lfs.github.com/", b"/annex/objects/")
POINTER_BYTES = 64  # bytes of a file that show whether it is a pointer


class ElsewhereError(FileNotFoundError):
    """A link or pointer stands for a file elsewhere, which may be intact there."""

    @classmethod
    def from_link(cls, path: Path) -> Self:
        return cls(
            f"{path.name} is a link to '{path.readlink()}', and nothing is there"
        )

    def refusal(self, subject: str, path: Path) -> OutOfReachError:
        """Build the error for the cache or run (``subject``) of this file."""
        return OutOfReachError(
            f"{subject} is out of reach",
            found=str(self),
            where=str(path.absolute()),
            hint="bring the file back: mount its disk, or fetch it "
            "('hf download', 'git lfs pull', 'git annex get', 'dvc pull')",
        )


def moved_away_error(kind: str, folder: Path) -> OutOfReachError:
    """Build the error for a cache or run (``kind``) that vanished while in use."""
    return OutOfReachError(
        f"the {kind} is no longer where it was",
        found="no such folder",
        where=str(folder),
        hint="bring the folder back, or name its new place",
    )


def describe_damage(error: Exception) -> str:
    """Say for people which of the errors of ``DAMAGE`` a file raised."""
    if isinstance(error, KeyError):
        return f"no key {error}"
    return str(error)


def short_digest(digest: str) -> str:
    """Shorten a hash for people to 48 bits.

    With a million caches, the probability that two share them is 0.2%.
    """
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


def fingerprint(fields: object) -> str:
    """SHA-256 of JSON with sorted keys, without white space, in ASCII."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return digest_of(text.encode())


def sealed_text(content: Mapping[str, object]) -> str:
    """Write content as JSON text that also holds the SHA-256 of the content."""
    sealed = {**content, SEAL: fingerprint(content)}
    return json.dumps(sealed, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """Check the digest in the content of a JSON file, and return the other content.

    Raises:
        ValueError: the digest is missing, or is that of other content.
    """
    if SEAL not in content:
        raise ValueError(f"no '{SEAL}'")
    unsealed_content = {key: value for key, value in content.items() if key != SEAL}
    if content[SEAL] != fingerprint(unsealed_content):
        raise ValueError(f"its content was changed: '{SEAL}' does not match it")
    return unsealed_content


def regular_file(path: Path) -> os.stat_result:
    """Size and times of a regular file; a link to one counts as the file.

    Raises:
        ElsewhereError: the file or its folder is a link that leads to nothing.
        ValueError: a folder, a device, a pipe, or a link to one of these.
        OSError: no such file, or the file cannot be reached now.
    """
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        # The folder of the file may be the broken link, too.
        for link in (path, path.parent):
            if link.is_symlink() and not link.exists():
                raise ElsewhereError.from_link(link) from error
        raise

    if not stat.S_ISREG(status.st_mode):
        message = f"{path.name} is not a regular file"
        if path.is_symlink():
            message += f", but a link to '{path.readlink()}'"
        raise ValueError(message)
    return status


def check_size(path: Path, expected_bytes: int) -> None:
    """Refuse a file of another size than expected, with one of ``DAMAGE``."""
    actual_bytes = regular_file(path).st_size
    if actual_bytes != expected_bytes:
        # The file may be a pointer, which is no damage.
        check_fetched(path)
        raise ValueError(
            f"{path.name} has {actual_bytes:,} bytes, but gaam wrote {expected_bytes:,}"
        )


def check_fetched(path: Path) -> None:
    """Refuse a pointer of Git LFS or git-annex to a file that was not fetched."""
    with path.open("rb") as file:
        start = file.read(POINTER_BYTES)
    if not start.startswith(POINTERS):
        return
    tool = "git-annex"
    if start.startswith(POINTERS[0]):
        tool = "Git LFS"
    raise ElsewhereError(
        f"{path.name} is a pointer of {tool}: the file was not fetched"
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object of a regular file; else raise one of ``DAMAGE``."""
    size = regular_file(path).st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(f"{path.name} is too large: {size:,} bytes")
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        check_fetched(path)
        raise
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def write_file(path: Path, content: bytes, *, exclusive: bool = False) -> bool:
    """Write a file, and its folder if needed; readers see all of it or no file.

    An existing file is replaced. So is a link; gaam never writes through it. With
    ``exclusive``, an existing file stays as it is, and the result is False.
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
    """Give a complete file its final name in one step; False if the name is taken."""
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise

    # Without hard links, a lock makes the check and the rename one step.
    with _locked(path.parent):
        if os.path.lexists(path):
            return False
        temporary.rename(path)
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; the system releases it when its holder dies."""
    # Imported here: not every system has it, and only an exclusive write needs it.
    import fcntl

    # The lock file stays until all is published. Were it removed now, a newcomer would
    # lock a new file while others still wait for the old one.
    with (folder / LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(
                "nothing can be published in this folder",
                expected="a file system with hard links, or with locks",
                found=f"neither: {error.strerror}",
                where=str(folder),
                hint="write to a folder on another file system, and copy it here "
                "when it is complete",
            ) from error
        yield


def remove_lock(folder: Path) -> None:
    """Remove the lock file of a folder in which everything is published."""
    with suppress(OSError):
        (folder / LOCK_FILE).unlink()


def temporary_path(folder: Path, name: str) -> Path:
    """A path for ``name`` while it is written or removed, unique to this process."""
    return folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def write_synced(path: Path, content: bytes) -> None:
    """Write and sync a new file, in a folder that no other process reads."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash, as far as the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def check_writable(path: Path, *, option: str, file: bool = False) -> None:
    """Refuse a path where no folder (with ``file``: no file) can be made and written.

    Commands call this before they start work. A folder with content passes even if it
    is read-only: the command may find everything done.
    """
    target = Path(os.path.realpath(path.expanduser()))
    if not file and target.is_dir() and any(target.iterdir()):
        return
    obstacle = _find_obstacle(path, target, file=file)
    if obstacle is not None:
        raise ConfigError(
            f"nothing can be written to '{target}'",
            found=obstacle,
            hint=f"choose another {option}; nothing was done yet",
        )


def _find_obstacle(path: Path, target: Path, *, file: bool) -> str | None:
    """Say why nothing can be written to ``path``, which leads to ``target``; else None.

    The target of a file lies in a folder; the target of a folder may be that folder.
    """
    candidates = list(target.parents)
    if not file:
        candidates.insert(0, target)
    # Missing folders are made in the nearest one that exists.
    nearest = next(folder for folder in candidates if os.path.lexists(folder))

    if file and target.exists() and not target.is_file():
        return "it is not a file"
    if not file and not target.exists() and path.is_symlink():
        return f"'{path}' is a link to it, and nothing is there"
    if not nearest.is_dir():
        return f"'{nearest}' is not a folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"Permission denied at '{nearest}'"
    return None


@contextmanager
def replace_folder(
    source: Path,
    out: Path,
    is_replaceable: Callable[[Path], bool],
    *,
    overwrite: bool = False,
) -> Iterator[Path]:
    """Yield a new folder that becomes ``out`` on success and is removed on any error.

    The folder is an export of ``source``: neither may contain the other. A folder with
    content is replaced only with ``overwrite`` and if ``is_replaceable``.
    """
    source = Path(os.path.realpath(source.expanduser()))
    out = Path(os.path.realpath(out.expanduser()))
    if source in (out, *out.parents) or out in source.parents:
        raise ConfigError(
            "a folder cannot be exported into itself or around itself",
            found=str(out),
            where=str(source),
        )
    check_writable(out, option="DIR")

    has_content = out.is_dir() and any(out.iterdir())
    if has_content and not (overwrite and is_replaceable(out)):
        raise ConfigError(
            f"'{out}' exists already; nothing was changed",
            hint="name another folder, or replace an earlier export with --overwrite",
        )

    make_folder(out.parent)
    temporary = temporary_path(out.parent, out.name)
    temporary.mkdir()
    try:
        yield temporary
        # The old folder goes only now that the new one is complete.
        if has_content:
            shutil.rmtree(out)
        temporary.rename(out)
        sync_folder(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
