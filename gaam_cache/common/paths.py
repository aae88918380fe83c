"""Paths at the border: absolute once, whatever folder a program goes to; and as people see them."""

import os
from pathlib import Path

from gaam_cache.common.errors import NotFoundError


def absolute_path(path: str | Path) -> Path:
    """A path that means the same from any working folder; ``~`` is the user's own.

    Raises:
        NotFoundError: it is relative, and the working folder was removed; or ``~`` is nobody's.
    """
    try:
        path = Path(path).expanduser()
    except RuntimeError as error:
        raise NotFoundError(f"'{path}' means nothing: {error}") from error
    try:
        # '..' has no name that a run or cache could be called by
        return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"the working folder is gone, and '{path}' means nothing",
            hint="go to a folder that is there",
        ) from error


def shown_path(path: str | Path) -> str:
    """A path for people: from the working folder on where it lies below it."""
    try:
        return str(Path(path).relative_to(os.getcwd()))  # noqa: PTH109 the folder may be gone
    except (ValueError, FileNotFoundError):
        return str(path)
