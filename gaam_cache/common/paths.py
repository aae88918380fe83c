"""Paths: made absolute when they come in, and short when people see them."""

import os
from collections.abc import Callable
from pathlib import Path

from gaam_cache.common.errors import NotFoundError
from gaam_cache.common.messages import nearest

MOST_SUGGESTED = 3  # folders that a hint lists


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


def suggest_folder(path: Path, is_wanted: Callable[[Path], bool], command: str) -> str:
    """A hint for a path that is not the wanted folder, such as a cache.

    It asks whether the folder of the most similar name was meant, lists the wanted
    folders beside the path and in it, or names the command that makes one.

    Args:
        path: the path that a person named.
        is_wanted: whether a folder is of the wanted kind.
        command: the command that makes such a folder.
    """
    path = absolute_path(path)
    wanted_folders: list[Path] = []
    for candidate in sorted({*path.parent.glob("[!.]*"), *path.glob("[!.]*")}):
        # unlike Path.is_dir, this is False where the user may not look
        is_folder = os.path.isdir(candidate)  # noqa: PTH112
        if candidate != path and is_folder and is_wanted(candidate):
            wanted_folders.append(candidate)

    similar_name = nearest(path.name, [folder.name for folder in wanted_folders])
    for folder in wanted_folders:
        if folder.name == similar_name:
            return f"did you mean '{shown_path(folder)}'?"
    if not wanted_folders:
        return f"make one with '{command}'"
    suggested = wanted_folders[:MOST_SUGGESTED]
    names = ", ".join(f"'{shown_path(folder)}'" for folder in suggested)
    return f"name {names}, or make another with '{command}'"
