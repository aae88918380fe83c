"""Paths: made absolute when they come in, and short when people see them."""

import os
from pathlib import Path

from gaam_cache.common.errors import NotFoundError


def absolute_path(path: str | Path) -> Path:
    """A path that means the same from any working folder; ``~`` is the user's home.

    A path with '..' is also resolved: it ends in the name of a folder then.

    Raises:
        NotFoundError: the home is unknown, or a relative path has no working folder.
    """
    try:
        path = Path(path).expanduser()
    except RuntimeError as error:
        raise NotFoundError(f"'{path}' means nothing: {error}") from error
    try:
        # a run or cache takes its name from its path, and '..' is not a name
        if ".." in path.parts:
            return Path(os.path.realpath(path))
        return path.absolute()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"the working folder is gone, and '{path}' means nothing",
            hint="change to a folder that exists",
        ) from error


def shown_path(path: str | Path) -> str:
    """A path for people: relative if it lies below the working folder.

    Any other path is unchanged, and so is every path if the working folder is gone.
    """
    try:
        working_folder = os.getcwd()  # noqa: PTH109 the folder may be gone
        return str(Path(path).relative_to(working_folder))
    except (ValueError, FileNotFoundError):
        return str(path)
