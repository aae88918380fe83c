"""The last resort: what the machine refused, wherever it was asked, becomes one message."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

from gaam_cache.devices import out_of_memory
from gaam_cache.errors import GaamError, ShortOfMemoryError, StorageError

_NO_DESCRIPTORS = re.compile(r"too many open files|errno = 24\b|os error 24\b", re.IGNORECASE)
_NO_THREADS = re.compile(r"can't start new thread|Resource temporarily unavailable")


def ran_out(error: BaseException) -> bool:
    """Whether memory, descriptors or threads ran out: then a file that fails is not a bad file."""
    return _exhausted(error) is not None


def as_refusal(error: BaseException) -> GaamError | None:
    """The machine's refusal behind an exception, or None where it is a bug of ours.

    Libraries wrap what the system said in exceptions of their own: what ran out is looked for in
    all that led to it. Other refusals count only where nobody has wrapped them.
    """
    if isinstance(error, ShortOfMemoryError):
        return error  # it says more of it than can be said here
    if (exhausted := _exhausted(error)) is not None:
        return exhausted
    if isinstance(error, OSError) and not isinstance(error, GaamError):
        return _unexpected(error)
    return None


def _exhausted(error: BaseException) -> GaamError | None:
    for cause in _causes(error):
        if isinstance(cause, GaamError):
            continue  # what we say of it is not what the system said
        text = f"{type(cause).__name__} {cause}"
        number = cause.errno if isinstance(cause, OSError) else None
        if number == errno.ENOMEM or out_of_memory(cause):
            return GaamError(
                "not enough memory",
                found=_one_line(cause),
                hint="give it more (ulimit -v, the limits of a container or a queue), or let it "
                "hold less at once: extract --batch-tokens or --shard-rows, train --seed-batch 1; "
                "what is finished is kept",
            )
        if number in (errno.EMFILE, errno.ENFILE) or _NO_DESCRIPTORS.search(text):
            return StorageError(
                "too many open files",
                found=_one_line(cause),
                hint="raise 'ulimit -n'; what is finished is kept",
            )
        if _NO_THREADS.search(text):
            return StorageError(
                "no more threads or processes",
                found=_one_line(cause),
                hint="raise 'ulimit -u', or set OMP_NUM_THREADS=1; what is finished is kept",
            )
    return None


def _unexpected(error: OSError) -> GaamError:
    if isinstance(error, FileNotFoundError) and _is_current_folder_gone():
        return StorageError(
            "the current folder is gone",
            found=error.strerror,
            hint='change to a folder that exists, or into this one anew: cd "$PWD"',
        )
    return StorageError(
        "the system refused",
        found=_one_line(error),
        where=str(error.filename) if error.filename else None,
        hint="look at the disk, its mount and its permissions; what is finished is kept, and "
        "the same command goes on from there",
    )


def _is_current_folder_gone() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
