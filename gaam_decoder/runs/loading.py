"""Finished runs as a list: of folders, of single runs, of some of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from gaam_cache.errors import CacheError, GaamWarning, NotFoundError
from gaam_cache.messages import brief
from gaam_decoder.runs.filter_values import Texts
from gaam_decoder.runs.filters import Filters
from gaam_decoder.runs.near_names import near_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import TEST_FILE
from gaam_decoder.runs.run_folders import damaged_runs, is_run, run_folders, unfinished_runs
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.runs.selection import UNNAMED, Selection
from gaam_decoder.runs.several import Runs

READERS = 4
"""Threads that hash: more do not pay, and each holds a file open."""


def load_runs(
    path: str | Path | Sequence[str | Path],
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
    since: str | datetime | None = None,
) -> Runs:
    """All finished runs below a folder, or the one run that ``path`` itself is; or of several.

    What was tested is hashed at once: a table without one of its runs would be another table, so
    all damaged ones are named together. A run that is named twice, by a link too, is there once.

    Args:
        path: folders of runs, and runs.
        attn: mechanisms that are meant: ``gaam`` in every form, ``gaam:heads=1`` in that one.
        head: the same of heads.
        layers: sets of layers that are meant, such as ``1-8`` or ``all``.
        lr: learning rates that are meant.
        cache: folder of the cache that is meant, or 4 or more digits of its fingerprint.
        since: only what was published then or later: a date, or how long ago (``12h``, ``3d``).

    Returns:
        A list with ``to_frame()``, which knows what was left out (``selection``).

    Raises:
        NotFoundError: no finished run there, or none that is meant.
        ConfigError: a filter that means nothing.
        CacheError: damaged runs, or none of them finished.
        StorageError: one that cannot be read now.

    Warns:
        GaamWarning: runs that are not finished.
    """
    filters = Filters.of(attn=attn, head=head, layers=layers, lr=lr, cache=cache, since=since)
    runs, damaged = sound_runs(path)
    if damaged:
        raise damaged_runs(damaged, len(runs) + len(damaged))
    unfinished = [name for folder in _paths(path) for name in unfinished_runs(folder)]
    if unfinished:
        warnings.warn(
            f"not among the runs, because they are not finished: {brief(', '.join(unfinished))}",
            GaamWarning,
            stacklevel=2,
        )
    found = Runs(runs, _unnamed(_paths(path), runs)).chosen(filters)
    if not found and found.selection is not None:
        raise nothing_left(found.selection)
    return found


def one_run(path: Path) -> RunResult:
    """The finished run in a folder.

    Raises:
        NotFoundError: there is none.
        CacheError: it is damaged.
        StorageError: it cannot be read now.
    """
    if not is_run(path):
        raise NotFoundError(
            f"no finished run at '{path}'",
            expected=f"the folder of one run, with {RUN_FILE}",
            where=str(path.absolute()),
            hint=near_run(path) or "gaam runs lists the runs of a folder",
        )
    return read_run(path)


def gathered(
    runs: str | Path | RunResult | Sequence[str | Path | RunResult], filters: Filters
) -> Runs:
    """Runs that are on disk or in memory, those that the filters mean; none of them twice.

    Raises:
        NotFoundError: there is none, or none that is meant.
        ConfigError: a filter that means nothing.
        CacheError: damaged runs.
    """
    several = [runs] if isinstance(runs, (str, Path, RunResult)) else runs
    paths = [one for one in several if not isinstance(one, RunResult)]
    found = load_runs(paths) if paths else Runs()
    found.extend(dict.fromkeys(one for one in several if isinstance(one, RunResult)))
    if not found:
        raise NotFoundError("nothing to report on", expected="one run or more", found="none")
    if isinstance(runs, Runs):
        found.selection, found.others = runs.selection, runs.others
    found = found.chosen(filters)
    if not found and found.selection is not None:
        raise nothing_left(found.selection)
    return found


def nothing_left(selection: Selection) -> NotFoundError:
    """What is said where filters leave no run."""
    return NotFoundError(
        "no run is left",
        expected="runs that fit all filters",
        found=selection.in_words(),
        hint="'gaam runs' lists what there is",
    )


def _paths(path: str | Path | Sequence[str | Path]) -> list[Path]:
    several = [path] if isinstance(path, (str, Path)) else path
    return [Path(one).expanduser() for one in several]


def _unnamed(paths: Sequence[Path], runs: Sequence[RunResult]) -> Selection | None:
    """How many runs lie beside those that were named one by one, where any were."""
    named = [path for path in paths if is_run(path)]
    taken = {run.path.resolve() for run in runs}
    parents = {path.resolve().parent for path in named}
    beside = {run.resolve() for parent in parents for run in run_folders(parent)} - taken
    if not beside:
        return None
    return Selection(chosen=len(runs), left_out={UNNAMED: len(beside)})


def sound_runs(
    path: str | Path | Sequence[str | Path],
) -> tuple[list[RunResult], dict[Path, CacheError]]:
    """What ``load_runs`` returns, and beside it what is damaged, by folder.

    Raises:
        NotFoundError: no finished run there, whole or damaged.
        StorageError: one that cannot be read now.
    """
    found: dict[Path, Path] = {}
    for folder in _paths(path):
        for run in _runs_at(folder):
            found.setdefault(run.resolve(), run)
    return check_all(list(found.values()))


def check_all(folders: Sequence[Path]) -> tuple[list[RunResult], dict[Path, CacheError]]:
    """Runs of which what was tested is whole, and beside them what is damaged, by folder.

    Raises:
        StorageError: one that cannot be read now.
    """
    runs: list[RunResult] = []
    damaged: dict[Path, CacheError] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for place, checked in zip(folders, pool.map(_checked, folders), strict=True):
            if isinstance(checked, CacheError):
                damaged[place] = checked
            else:
                runs.append(checked)
    return runs, damaged


def _runs_at(folder: Path) -> list[Path]:
    found = [folder] if is_run(folder) else run_folders(folder)
    if found:
        return found
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
        hint=near_run(folder) or "make one with 'gaam train', or name another folder",
    )


def _checked(path: Path) -> RunResult | CacheError:
    try:
        run = read_run(path)
        run.check_digest(TEST_FILE)
    except CacheError as error:
        return error
    return run
