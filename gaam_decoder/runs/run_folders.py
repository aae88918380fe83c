"""Which runs lie in a folder: finished ones, damaged ones, and those that were begun."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gaam_cache.errors import CacheError, GaamWarning, NotFoundError
from gaam_cache.messages.foreign_text import brief, visible
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import RUN_FILES, TEST_FILE
from gaam_decoder.runs.run_files import damaged_run, reading, repair
from gaam_decoder.runs.run_name import is_named_as_run, of_key
from gaam_decoder.runs.run_reader import RUN_FILE, read_run

READERS = 4
"""Threads that hash: more do not pay, and each holds a file open."""


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
        except (FileNotFoundError, NotADirectoryError):
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
            return not {RUN_FILE, *RUN_FILES}.isdisjoint(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
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
    return sorted(p.name[1:].removesuffix(".partial") for p in folder.glob(".*.partial"))


def load_runs(path: str | Path) -> list[RunResult]:
    """All finished runs below a folder, or the one run that ``path`` itself is.

    What was tested is hashed at once: a table without one of its runs would be another table, so
    all damaged ones are named together.

    Raises:
        NotFoundError: no finished run there.
        CacheError: damaged runs, or none of them finished.
        StorageError: one that cannot be read now.

    Warns:
        GaamWarning: runs that are not finished.
    """
    runs, damaged = sound_runs(path)
    if damaged:
        raise damaged_runs(damaged, len(runs) + len(damaged))
    if unfinished := unfinished_runs(Path(path).expanduser()):
        warnings.warn(
            f"not among the runs, because they are not finished: {brief(', '.join(unfinished))}",
            GaamWarning,
            stacklevel=2,
        )
    return runs


def sound_runs(path: str | Path) -> tuple[list[RunResult], dict[Path, CacheError]]:
    """What ``load_runs`` returns, and beside it what is damaged, by folder.

    Raises:
        NotFoundError: no finished run there, whole or damaged.
        StorageError: one that cannot be read now.
    """
    folder = Path(path).expanduser()
    found = [folder] if is_run(folder) else run_folders(folder)
    if not found:
        if unfinished := unfinished_runs(folder):
            raise CacheError(
                f"no run in '{folder}' is finished",
                expected=f"folders with {RUN_FILE}",
                found=f"{len(unfinished)} unfinished",
                where=str(folder.absolute()),
                hint="the same 'gaam train' again finishes them",
            )
        raise NotFoundError(
            f"no finished runs in '{folder}'",
            expected=f"folders with {RUN_FILE}",
            found="none",
            where=str(folder.absolute()),
            hint="make one with 'gaam train', or name another folder",
        )
    runs: list[RunResult] = []
    damaged: dict[Path, CacheError] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for place, checked in zip(found, pool.map(_checked, found), strict=True):
            if isinstance(checked, CacheError):
                damaged[place] = checked
            else:
                runs.append(checked)
    return runs, damaged


def _checked(path: Path) -> RunResult | CacheError:
    try:
        run = read_run(path)
        run.check_digest(TEST_FILE)
    except CacheError as error:
        return error
    return run


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
