"""What a file system refuses, in one message that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaam_cache.errors import GaamError, StorageError

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
    """Tell a file that may not be read now from one that is damaged.

    What is called damaged is next taken away and made again: a good file must not be.

    Args:
        error: what came of reading.
        path: of the file.

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
