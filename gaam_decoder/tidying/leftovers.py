"""Unfinished work that nobody is at, and folders that were on their way in or out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.engines.sharing.processes import is_alive

from gaam_decoder.runs.run_files import reading
from gaam_decoder.runs.run_name import is_unfinished, work_of
from gaam_decoder.tidying.at_work import STALE_SECONDS, at_work, clock_of, is_at

_TEMPORARY = re.compile(r"\..+\.([0-9]+)\.[0-9a-f]{8}\.tmp")
"""Folders as ``temporary_path`` names them: runs that were being written, moved or removed."""
REMOVED = "removed"
"""How the names begin of folders on their way out: nobody wants them any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stale:
    """What is unfinished in a folder of runs."""

    folders: tuple[Path, ...]
    """That nobody is at, absolute."""
    at_work: dict[str, str]
    """By name the others, and who is at them."""


def stale(runs: Path) -> Stale:
    """Unfinished work and its temporary folders, apart by whether somebody is at them.

    Raises:
        StorageError: a folder that cannot be read.
    """
    place = runs.absolute().resolve()
    with reading(place):
        try:
            there = sorted(path for path in place.iterdir() if _is_folder(path))
        except (FileNotFoundError, NotADirectoryError):
            there = []
    held = at_work(place)
    now = clock_of(place)
    folders: list[Path] = []
    kept: dict[str, str] = {}
    for path in there:
        if is_unfinished(path.name):
            if who := [one for one in held if is_at(one, work_of(path.name))]:
                kept[path.name] = who[0].in_words()
            else:
                folders.append(path)
        elif found := _TEMPORARY.fullmatch(path.name):
            if is_alive(int(found[1]), None):
                kept[path.name] = f"process {found[1]}"
            elif path.name.startswith(f".{REMOVED}") or _is_old(path, now):
                folders.append(path)
            else:
                kept[path.name] = "made lately, perhaps by another machine"
    return Stale(folders=tuple(folders), at_work=kept)


def _is_folder(path: Path) -> bool:
    return path.name.startswith(".") and path.is_dir() and not path.is_symlink()


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > STALE_SECONDS
    except OSError:
        return False
