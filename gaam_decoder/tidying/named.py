"""Which runs are meant by words and filters, where something is to be done to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.errors import CacheError, ConfigError, NotFoundError
from gaam_cache.messages import brief, shortened, visible
from gaam_decoder.runs.filters import Filters
from gaam_decoder.runs.near_names import near_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_folders import is_run, run_folders
from gaam_decoder.runs.run_name import is_named_as_run
from gaam_decoder.runs.run_reader import read_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Meant:
    """Runs to which something is to be done."""

    folders: tuple[Path, ...]
    """Absolute, each once."""
    unjudged: tuple[str, ...] = ()
    """Damaged ones, of which no filter can say anything: nothing is done to them."""


def meant(words: Sequence[str | Path], filters: Filters, runs: Path) -> Meant:
    """Runs that are named, or all of a folder; those of them that filters mean.

    Args:
        words: folders of runs, or their names within ``runs``; damaged runs too.
        filters: without words they choose from all of ``runs``.
        runs: a folder of runs.

    Raises:
        ConfigError: neither words nor filters, a folder of many runs, or a link.
        NotFoundError: no such run, or none that fits.
        StorageError: a folder that cannot be read.
    """
    if not words and not filters:
        raise ConfigError(
            "which runs?",
            expected="names of runs, or a filter: --attn, --head, --cache, --since",
            found="neither",
            hint="'gaam runs' lists what there is",
        )
    named = [named_run(word, runs) for word in words] if words else _all(runs)
    folders = list(dict.fromkeys(named))
    if not filters:
        return Meant(folders=tuple(folders))
    read: list[RunResult] = []
    unjudged: list[str] = []
    for folder in folders:
        try:
            read.append(read_run(folder))
        except CacheError:
            unjudged.append(visible(folder.name))
    chosen, selection = filters.choose(read)
    if not chosen:
        raise NotFoundError(
            "no run is meant",
            expected="runs that fit all filters",
            found=selection.in_words(),
            where=visible(str(runs.absolute())),
            hint="'gaam runs' lists what there is",
        )
    return Meant(folders=tuple(run.path for run in chosen), unjudged=tuple(unjudged))


def _all(runs: Path) -> list[Path]:
    check_there(runs)
    folder = runs.expanduser().absolute()
    found = [path for path in run_folders(folder) if not path.is_symlink()]
    if not found:
        raise _nothing_in(runs, "no run")
    return found


def check_there(runs: Path) -> None:
    """Refuse a folder of runs that is none.

    Raises:
        NotFoundError: nothing is there, or a file.
    """
    folder = runs.expanduser()
    if not _is_folder(folder):
        there = os.path.lexists(folder)
        raise _nothing_in(runs, "no folder" if there else "no such folder")


def _nothing_in(runs: Path, found: str) -> NotFoundError:
    return NotFoundError(
        visible(f"no runs in '{brief(str(runs))}'"),
        expected="a folder of runs",
        found=found,
        where=visible(str(runs.expanduser().absolute())),
        hint="name another with --runs",
    )


def named_run(word: str | Path, runs: Path) -> Path:
    """The folder of a run, whole or damaged, by its path or by its name within ``runs``.

    Raises:
        ConfigError: a link, a folder of many runs, or a name with a dot before it.
        NotFoundError: none of these.
    """
    if problem := "a name" * (not str(word).strip()):
        raise ConfigError("bad name of a run", expected=problem, found=repr(shortened(str(word))))
    path = Path(word).expanduser()
    if not _is(path) and len(path.parts) == 1 and _is(runs.expanduser() / path):
        path = runs.expanduser() / path
    place = path.absolute() if path.name not in ("", "..") else path.resolve()
    place = place.parent.resolve() / place.name
    if place.name.startswith("."):
        raise ConfigError(
            f"'{brief(place.name)}' is no finished run",
            expected="a run without a dot before its name",
            where=visible(str(place.parent)),
            hint="'gaam runs remove --unfinished' removes what nobody is at work on",
        )
    if place.is_symlink():
        raise ConfigError(
            f"'{brief(place.name)}' is a link, not a run",
            expected="the folder of a run itself",
            found=visible(f"a link to {place.resolve()}"),
            where=visible(str(place.parent)),
        )
    if _is(place):
        return place
    if count := len(run_folders(place)):
        raise ConfigError(
            f"'{brief(str(word))}' is no run",
            expected="runs, or a filter and --runs with their folder",
            found=f"a folder of {count:,} runs",
            where=visible(str(place)),
        )
    found = "no such run"
    if len(path.parts) == 1 and not _is_folder(runs.expanduser()):
        found += visible(f", and no folder '{runs}'")
    raise NotFoundError(
        f"no run '{brief(str(word))}'",
        expected=visible(f"the folder of a run, or its name within '{runs}'"),
        found=found,
        where=visible(str(place)),
        hint=near_run(path) or "'gaam runs' lists what there is",
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is(path: Path) -> bool:
    return _is_folder(path) and (is_named_as_run(path.name) or is_run(path))
