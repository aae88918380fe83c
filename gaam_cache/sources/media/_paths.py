"""Paths that a table names: which file each is, and which are nobody's to name."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._texts import check_encodable

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|data:[a-z]+/")
OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
"""A drive, or another machine."""


def checked_path(named: str, folder: Path, *, outside: bool) -> Path:
    """The file that a cell names: relative to a folder, and in it.

    Links are followed; where they lead must lie in the folder too.

    Args:
        named: what the cell holds.
        folder: absolute, that of the table.
        outside: take files that lie elsewhere.

    Raises:
        DataError: it is elsewhere, no file, or no path at all.
    """
    check_encodable(named, "path")
    if URL.match(named):
        raise _refusal(
            "a file is named by its address on a network",
            named,
            "a path on this disk",
            "download the files, and write the paths that they have here",
        )
    if "\0" in named or OF_WINDOWS.match(named):
        raise _refusal("a path is none of this machine", named, "a path as 'clips/1.wav'")
    return within(folder / named, folder, named, outside=outside)


def within(path: Path, folder: Path, named: str, *, outside: bool) -> Path:
    """The same path, if it leads to a regular file of the folder.

    Args:
        path: absolute.
        folder: absolute.
        named: what people know it by.
        outside: take files that lie elsewhere.

    Raises:
        DataError: it does not.
    """
    try:
        real = os.path.realpath(path, strict=True)
        status = os.stat(real)  # noqa: PTH116 a Path costs as much as the call
    except OSError as error:
        hint = None
        if "\\" in named:
            hint = "write / between folders"
        elif isinstance(error, FileNotFoundError):
            hint = f"paths are relative to {folder}"
        raise _refusal(
            "a file cannot be read", named, "a file", hint, f": {error.strerror}"
        ) from error
    if not outside and not Path(real).is_relative_to(os.path.realpath(folder)):
        if Path(named).is_absolute() or ".." in Path(named).parts:
            why = ""
        else:
            why = f", a link to {excerpt(real)}"
        raise _refusal(
            "a file lies outside of the folder of the data set",
            named,
            f"a path relative to {folder}, which stays in it",
            "--set allow-outside=true takes it, if the data set is to be trusted",
            why,
        )
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
        raise _refusal("a path is that of no file", named, "a regular file", None, f", {what}")
    return path


def _refusal(
    message: str, named: str, expected: str, hint: str | None = None, why: str = ""
) -> DataError:
    return DataError(message, expected=expected, found=f"{excerpt(named)}{why}", hint=hint)
