"""Where something is to be written: whether it can be there, asked before the work is done."""

from __future__ import annotations

import os
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.messages import visible

LONGEST_NAME = 255
"""Bytes of one part of a path, as file systems have it."""
_CLOSED = "Permission denied: the folder may not be written to"


def check_folder(path: Path, *, option: str) -> None:
    """Refuse a place where no folder can be.

    Whether one that holds something may be written to is not asked: all may be there already.

    Args:
        path: a folder, or where one is to be made, with those above it.
        option: of the command line, which names another.

    Raises:
        ConfigError: a file, or a link that leads nowhere, is there or above; a name that is too
            long; or nothing may be written there.
    """
    path = path.expanduser()
    if (state := _state(path)) == "a folder":
        if not _may_write(path) and not _anything_in(path):
            raise _refused(path, "a folder", _CLOSED, path, option)
    elif state is not None:
        raise _refused(path, "a folder, or nothing yet", state, path, option)
    else:
        _check_above(path, "a folder", option)


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
    if longest > LONGEST_NAME:
        found = f"a name too long, of {longest:,} bytes"
        raise _refused(
            path, f"names of at most {LONGEST_NAME} bytes for {what}", found, path, option
        )
    for folder in path.parents:
        state = _state(folder)
        if state == "a folder":
            if not _may_write(folder):
                raise _refused(path, f"a place for {what}", _CLOSED, folder, option)
            return
        if state is not None:
            raise _refused(path, f"a place for {what}: folders above it", state, folder, option)


def _state(path: Path) -> str | None:
    """What is there, for people; None where nothing is."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    try:
        if path.is_dir():
            return "a folder"
        if path.is_file():
            return "a file"
    except OSError as error:
        return error.strerror
    return "a pipe or device" if path.exists() else "a link that leads nowhere"


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _anything_in(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return True  # whoever reads it says why not


def _refused(path: Path, expected: str, found: str, where: Path, option: str) -> ConfigError:
    return ConfigError(
        visible(f"nothing can be written to '{path}'"),
        expected=expected,
        found=visible(found),
        where=visible(str(where.absolute())),
        hint=("get the right to write there" if found is _CLOSED else "move it away")
        + f", or choose another {option}; nothing was done yet",
    )
