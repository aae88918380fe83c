"""The files of a run: hashed before they are used, and what is said where they are not right."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, StorageError
from gaam_cache.messages import visible
from gaam_cache.store.digest import chunks, digest_of_stream
from gaam_cache.store.files import Identity, open_regular


class HashedFiles:
    """Files of one folder whose sizes and digests are known.

    Args:
        folder: where they lie.
        files: by name their size and SHA-256 (``bytes``, ``sha256``).
    """

    def __init__(self, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._files = files
        self._known: dict[str, Identity] = {}

    @contextmanager
    def opened(self, name: str) -> Iterator[BufferedReader]:
        """An open file, of which every byte is what was written.

        It is hashed once; later, what the file system knows of it must be as it was then.

        Raises:
            CacheError: it is not, or what is done with it ends in a ValueError.
            StorageError: it cannot be read now.
        """
        path, about = self._folder / name, self._files[name]
        with reading(path), open_regular(path) as file:
            status = os.fstat(file.fileno())
            identity = Identity.of(status)
            if self._known.get(name) != identity:
                check_size(status, about["bytes"], name)
                if digest_of_stream(chunks(file)) != about["sha256"]:
                    raise ValueError(f"{name} is not what was written: it was changed")
                file.seek(0)
            yield file
            if Identity.of(os.fstat(file.fileno())) != identity:
                raise ValueError(f"{name} was changed while it was read")
            self._known[name] = identity


_DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say what is wrong with a file of a run: damaged, or not to be read now.

    Raises:
        CacheError: a ValueError, or there is no such file.
        StorageError: no permission, too many open files, the disk fails.
    """
    try:
        yield
    except StorageError:
        raise  # an OSError too, and said already
    except OSError as error:
        if error.errno in _DAMAGE:
            raise damaged_run(path, f"{path.name}: {error.strerror}") from error
        raise StorageError(
            f"cannot read '{path.name}'",
            found=error.strerror or str(error),
            where=visible(str(path.parent.absolute())),
            hint="make it readable; nothing is known to be damaged",
        ) from error
    except CacheError:
        raise
    except ValueError as error:
        raise damaged_run(path, str(error)) from error


def damaged_run(path: Path, found: str) -> CacheError:
    """What is said of a run by a file of it that is not right."""
    return CacheError(
        visible(f"the run '{path.parent.name}' is damaged"),
        expected="the files that gaam train wrote",
        found=visible(found),
        where=visible(str(path.absolute())),
        hint=f"{repair(path.parent)}; 'gaam train' makes the run again",
    )


def repair(*folders: Path) -> str:
    """The command that removes damaged runs."""
    return visible(f"rm -r {shlex.join(str(folder) for folder in folders)}")


def check_size(about: os.stat_result, expected: int, name: str) -> None:
    """Refuse what is no regular file of the size that was written, by a ValueError."""
    if not stat.S_ISREG(about.st_mode):
        raise ValueError(f"{name} is not a regular file")
    if about.st_size != expected:
        raise ValueError(f"{name} has {about.st_size:,} bytes, {expected:,} were written")
