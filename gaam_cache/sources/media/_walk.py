"""Files in a folder and those below it, in the same order on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gaam_cache.errors import DataError, StorageError

LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"}
"""What operating systems leave behind, in lower case; what begins with a dot is hidden too."""


def is_hidden(name: str) -> bool:
    """Whether an entry of a folder is not for people to see."""
    return name.startswith(".") or name.lower() in LITTER


def folders_of(folder: Path) -> list[Path]:
    """The folders in it, sorted by the bytes of their names.

    Raises:
        StorageError: it cannot be read.
    """
    return sorted((path for path, is_folder in entries_of(folder) if is_folder), key=os.fsencode)


def entries_of(folder: Path) -> list[tuple[Path, bool]]:
    """All that is in a folder and not hidden, and whether it is a folder too; in no order.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return [(folder / e.name, e.is_dir()) for e in entries if not is_hidden(e.name)]
    except OSError as error:
        raise StorageError(
            "a folder of the data set cannot be read",
            found=error.strerror or str(error),
            where=str(folder),
        ) from error


def files_below(
    folder: Path, root: Path, *, outside: bool
) -> Iterator[tuple[Path, DataError | None]]:
    """All files in a folder and below it, sorted by the bytes of their paths.

    Links to folders are followed. What is hidden is left out.

    Args:
        folder: where to begin.
        root: folders outside of it are not entered.
        outside: enter them nevertheless.

    Yields:
        A file; or a folder that is not entered, and why.
    """
    found: list[tuple[Path, DataError | None]] = []
    _gather(folder, os.path.realpath(root), frozenset(), found, outside=outside)
    yield from sorted(found, key=lambda one: os.fsencode(one[0]))


def _gather(
    folder: Path,
    root: str,
    above: frozenset[str],
    found: list[tuple[Path, DataError | None]],
    *,
    outside: bool,
) -> None:
    real = os.path.realpath(folder)
    problem = None
    if real in above:
        problem = DataError(
            "a link leads back to a folder that it is in", expected="no circles", found=real
        )
    elif not outside and not Path(real).is_relative_to(root):
        problem = DataError(
            "a folder lies outside of the folder of the data set",
            expected=f"a folder in {root}",
            found=f"a link to {real}",
            hint="--set allow-outside=true takes it, if the data set is to be trusted",
        )
    if problem is not None:
        found.append((folder, problem))
        return
    for path, is_folder in entries_of(folder):
        if is_folder:
            _gather(path, root, above | {real}, found, outside=outside)
        else:
            found.append((path, None))
