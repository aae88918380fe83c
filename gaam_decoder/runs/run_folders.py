"""Which runs lie in a folder: finished ones, damaged ones, and those that were begun."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.errors import CacheError
from gaam_cache.messages import visible
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import ALL_FILES
from gaam_decoder.runs.run_files import damaged_run, reading, repair
from gaam_decoder.runs.run_name import is_named_as_run, of_key, unfinished_folders, work_of
from gaam_decoder.runs.run_reader import RUN_FILE, read_run

_NOT_THERE = (FileNotFoundError, NotADirectoryError, ValueError)
"""How the system says so; a ValueError of a name that no file can have."""


def run_folders(folder: Path, part: str = "") -> list[Path]:
    """Folders below that are runs, whole or damaged, by name; without those with a dot before it.

    Whatever is named like a run is one: of a copy that was cut off, only the folder may be there,
    and a table without its row would be another table.

    Args:
        folder: of all runs.
        part: of their names; others are not looked into.

    Raises:
        StorageError: a folder that must not be read.
    """
    with reading(folder):
        try:
            names = sorted(path.name for path in folder.iterdir())
        except _NOT_THERE:
            return []
    named = [folder / name for name in names if name[0] != "." and part in name]
    return [path for path in named if is_named_as_run(path.name) or is_run(path)]


def is_run(folder: Path) -> bool:
    """Whether any file of a run lies there: without run.json it is a damaged one.

    Raises:
        StorageError: the folder must not be read.
    """
    with reading(folder):
        try:
            return not {RUN_FILE, *ALL_FILES}.isdisjoint(path.name for path in folder.iterdir())
        except _NOT_THERE:
            return False


def runs_of_key(folder: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache: those that a training need not make.

    Raises:
        CacheError: damaged runs, or one that lies in the folder of another.
        StorageError: one that cannot be read now.
    """
    found: list[RunResult] = []
    damaged: dict[Path, CacheError] = {}
    named = run_folders(folder, of_key(key))
    for path in named:
        try:
            run = read_run(path)
            if run.key[:8] != key[:8]:
                raise damaged_run(path / RUN_FILE, f"it is that of a run with {run.key[:8]}")
        except CacheError as error:
            damaged[path] = error
        else:
            found.append(run)
    if damaged:
        raise damaged_runs(damaged, len(named))
    return [run for run in found if run.key == key]


def unfinished_runs(folder: Path) -> list[str]:
    """Names of runs that were started and not finished."""
    return [work_of(path.name) for path in unfinished_folders(folder)]


def damaged_runs(damaged: dict[Path, CacheError], total: int) -> CacheError:
    """One error for all that are damaged."""
    if len(damaged) == 1:
        return next(iter(damaged.values()))
    reasons = [f"{path.name}: {error.details['found']}" for path, error in damaged.items()]
    return CacheError(
        f"{len(damaged)} of {total} runs are damaged",
        expected="the files that gaam train wrote",
        found=visible("\n            ".join(reasons), keep="\n"),
        where=visible(str(next(iter(damaged)).parent.absolute())),
        hint=f"{repair(*damaged)}; 'gaam train' makes them again",
    )
