"""Write files and folders completely or not at all, read and hash JSON and files.

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

# A larger file is damaged: gaam writes none that comes near this size.
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

POINTERS = {
    b"version https://git-lfs.github.com/": ("Git LFS", "git lfs pull"),
    b"# xet version ": ("Git Xet", "git xet checkout, or download the file again"),
    b"/annex/objects/": ("git-annex", "git annex get"),
}
"""First bytes of a pointer file -> its program, and how to fetch the file itself."""
MAX_POINTER_BYTES = 1024  # no larger file is a pointer


class ElsewhereError(FileNotFoundError):
    """A link or pointer stands for a file elsewhere, which may be intact there."""

    @classmethod
    def from_link(cls, path: Path) -> Self:
        """The error for a symbolic link whose target does not exist."""
        return cls(
            f"{path.name} is a link to '{path.readlink()}', and nothing is there"
        )

    def out_of_reach_error(self, subject: str, path: Path) -> OutOfReachError:
        """Make an error for the user, which says how to bring the file back.

        Args:
            subject: what the file belongs to, for the message: "the shard 'train-0'".
            path: the file.
        """
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
    """Say in words why a file is damaged.

    Args:
        error: one of ``DAMAGE``: what reading the file has raised.
    """
    # the text of a KeyError is nothing but the key
    if isinstance(error, KeyError):
        return f"no key {error}"
    return str(error)


def short_digest(digest: str) -> str:
    """The first 48 bits of a hash, for people.

    With a million caches, the probability that two share them is 0.2%.
    """
    return digest[:12]


def digest_of(*parts: bytes | memoryview) -> str:
    """SHA-256 of the joined parts, in hexadecimal digits."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_parts(parts: Iterable[bytes]) -> str:
    """SHA-256 over parts in order, each preceded by its length in bytes.

    The lengths make (ab, c) and (a, bc) differ.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def fingerprint(fields: object) -> str:
    """SHA-256 of JSON values, as hexadecimal digits.

    The values are hashed as JSON text with sorted keys, without white space, and with
    ASCII characters only, so that equal values always have equal fingerprints.
    """
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return digest_of(text.encode())


def sealed_text(content: Mapping[str, object]) -> str:
    """JSON text of an object to which a digest of its own content is added.

    ``unsealed`` checks this digest, whose key is ``SEAL``.
    """
    sealed = {**content, SEAL: fingerprint(content)}
    return json.dumps(sealed, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """Check the digest that ``sealed_text`` added to an object, and remove it.

    Args:
        content: the JSON object of a file; it is not changed.

    Returns:
        The object without its digest.

    Raises:
        ValueError: the digest is missing, or the object was changed after it was made.
    """
    if SEAL not in content:
        raise ValueError(f"no '{SEAL}'")
    unsealed_content = {key: value for key, value in content.items() if key != SEAL}
    if content[SEAL] != fingerprint(unsealed_content):
        raise ValueError(f"its content was changed: '{SEAL}' does not match it")
    return unsealed_content


def regular_file_status(path: Path) -> os.stat_result:
    """The status of a regular file, which has its size and times; follows links.

    Raises:
        ElsewhereError: the file or its folder is a link that leads to nothing.
        ValueError: the path is a folder, a device or a pipe, or a link to one of these.
        OSError: there is no such file, or it cannot be reached now.
    """
    try:
        status = path.stat()
    except OSError as error:
        # only these errors may come from a broken link
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        # Either the file or its folder may be the broken link.
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
    """Refuse a file that does not have the expected size.

    Raises:
        ElsewhereError: the file is a pointer or a broken link: it may be intact.
        ValueError: the file has another size, or is not a regular file.
        OSError: see ``regular_file_status``.
    """
    actual_bytes = regular_file_status(path).st_size
    if actual_bytes != expected_bytes:
        # A pointer in place of the file has another size, too, but is no damage.
        check_fetched(path)
        raise ValueError(
            f"{path.name} has {actual_bytes:,} bytes, but gaam wrote {expected_bytes:,}"
        )


def find_pointer(first_bytes: bytes) -> tuple[str, str] | None:
    """The entry of ``POINTERS`` for a file with these first bytes; None without one."""
    for beginning, program_and_command in POINTERS.items():
        if first_bytes.startswith(beginning):
            return program_and_command
    return None


def check_fetched(path: Path) -> None:
    """Refuse a pointer: it stands in place of a file that was not fetched.

    Raises:
        ElsewhereError: the file is a pointer.
    """
    with path.open("rb") as file:
        pointer = find_pointer(file.read(MAX_POINTER_BYTES))
    if pointer is not None:
        program, _ = pointer
        raise ElsewhereError(
            f"{path.name} is a pointer of {program}: the file was not fetched"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object that a file holds.

    Raises:
        ElsewhereError: the file is a pointer or a broken link: it may be intact.
        ValueError: the file is too large, or does not hold a JSON object.
        OSError: see ``regular_file_status``.
    """
    size = regular_file_status(path).st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(f"{path.name} is too large: {size:,} bytes")
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        # a file that was not fetched holds a pointer, which is no JSON and no damage
        check_fetched(path)
        raise
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def write_file(path: Path, content: bytes, *, exclusive: bool = False) -> bool:
    """Write a file in one step: readers see the complete file, or the state before.

    A missing folder is made. A symbolic link is replaced by the file; its target is
    not written to.

    Args:
        path: the file.
        content: its bytes.
        exclusive: leave an existing file as it is; otherwise it is replaced.

    Returns:
        Whether the file was written; False only with ``exclusive``.
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
    """Give a complete file its final name in one step; False if the name is taken.

    Args:
        temporary: the complete file. It may keep this name, too: the caller removes it.
        path: the final name.
    """
    try:
        # A link fails where the name exists; a rename would replace the other file.
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
    """Hold the lock of a folder inside the block; wait until no other process does.

    The system releases the lock of a process that dies. Only ``_publish`` calls this,
    where the file system has no hard links.

    Raises:
        StorageError: the file system has no locks either.
    """
    # Not every system has this module, and only an exclusive write needs it.
    import fcntl

    # The lock file stays after the block. If it were removed here, another process
    # could lock a new file of that name, while others still wait for the old one.
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
    """Remove the lock file of a folder, if there is one.

    Call this only when no process writes into the folder any more: see ``_locked``.
    """
    with suppress(OSError):
        (folder / LOCK_FILE).unlink()


def temporary_path(folder: Path, name: str) -> Path:
    """A path that no other process uses, for a file or folder that is not complete.

    Args:
        folder: where the file or folder will be.
        name: its final name.
    """
    return folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, and wait until the disk has it.

    Other processes can see the file while it is incomplete: its folder or its name
    must be one that they do not look for.
    """
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder, and the folders above it, unless it exists."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of the files in a folder.

    Then the names survive a crash of the machine. On a file system that cannot do this,
    nothing happens.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def check_writable(path: Path, *, option: str, file: bool = False) -> None:
    """Refuse an output path to which nothing can be written.

    Commands call this before they start work. A folder with content passes even if it
    is read-only: the command may find everything done.

    Args:
        path: the output, which need not exist yet.
        option: the option that names the path, for the message.
        file: whether the output is a file; otherwise it is a folder.

    Raises:
        ConfigError: the message says what is in the way.
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
    """Say why nothing can be written to a path; None if nothing is in the way.

    Args:
        path: the path as the user wrote it.
        target: the same path without symbolic links.
        file: whether the output is a file; otherwise it is a folder.
    """
    folders = list(target.parents)
    if not file:
        folders.insert(0, target)
    # Missing folders are made inside the nearest one that exists.
    nearest = next(folder for folder in folders if os.path.lexists(folder))

    if file and target.exists() and not target.is_file():
        return "it is not a file"
    if not file and not target.exists() and path.is_symlink():
        return f"'{path}' is a link to it, and nothing is there"
    if not nearest.is_dir():
        return f"'{nearest}' is not a folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"Permission denied at '{nearest}'"
    return None


def _refuse_nested_folders(source: Path, out: Path) -> None:
    """Refuse to export a folder into itself, or into a folder that contains it."""
    if source in (out, *out.parents) or out in source.parents:
        raise ConfigError(
            "a folder cannot be exported into itself or around itself",
            found=str(out),
            where=str(source),
        )


@contextmanager
def replace_folder(
    source: Path | None,
    out: Path,
    is_replaceable: Callable[[Path], bool],
    *,
    overwrite: bool = False,
) -> Iterator[Path]:
    """Yield a new folder that becomes ``out`` on success and is removed on any error.

    Args:
        source: the folder that is exported. It and ``out`` must not contain each other.
            None if ``out`` is made of what is in memory.
        out: the export. It may be missing or empty.
        is_replaceable: whether an existing folder is an earlier export, which may be
            removed.
        overwrite: replace an ``out`` with content, if it is replaceable.

    Yields:
        The folder to write the export into.

    Raises:
        ConfigError: ``out`` cannot be written, or has content that must stay.
    """
    out = Path(os.path.realpath(out.expanduser()))
    if source is not None:
        _refuse_nested_folders(Path(os.path.realpath(source.expanduser())), out)
    check_writable(out, option="DIR")

    has_content = out.is_dir() and any(out.iterdir())
    if has_content and not (overwrite and is_replaceable(out)):
        hint = "name another folder, or replace an earlier export with --overwrite"
        if overwrite:
            hint = "name another folder: this one is no earlier export, and stays"
        raise ConfigError(f"'{out}' exists already; nothing was changed", hint=hint)

    make_folder(out.parent)
    temporary = temporary_path(out.parent, out.name)
    temporary.mkdir()
    try:
        yield temporary
        # Only now, when the new folder is complete, the old one is removed.
        if has_content:
            shutil.rmtree(out)
        temporary.rename(out)
        sync_folder(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
