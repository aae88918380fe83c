"""Folders of runs: their names, what lies in one, and where the cache of a run is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.engines._claims import is_alive
from gaam_cache.errors import CacheError, GaamError
from gaam_cache.store.digest import digest_of, short_digest
from gaam_cache.store.plan import read_plan
from gaam_decoder.runs.result import ALL_FILES, RUN_FILE, RunResult, damaged_run, read_run, reading

_ENDING = re.compile(r"-[0-9a-f]{8}-s\d[0-9a-fx_-]*\Z")  # how the names end that ``run_name`` gives
_PARTIAL = ".partial"
CLAIM_FOLDER = ".claims"  # in a folder of runs: who trains what


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: readable in front, unambiguous behind."""
    front = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{attention}-{head}")
    return f"{front[:80]}{ending(key, seeds)}"


def ending(key: str, seeds: Sequence[int]) -> str:
    """How the name of a run ends: by this a training finds what is there already."""
    contiguous = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if contiguous else "_".join(map(str, seeds))
    if len(text) > 40:
        text = f"{len(seeds)}x{digest_of(text.encode())[:8]}"
    return f"-{key[:8]}-s{text}"


def unfinished_name(work: str) -> str:
    """What the folder of unfinished work is called, which begins with a dot."""
    return f".{work}{_PARTIAL}"


def work_of(name: str) -> str:
    """The work that ``unfinished_name`` named."""
    return name.removeprefix(".").removesuffix(_PARTIAL)


def unfinished_folders(runs: Path) -> list[Path]:
    """Folders of unfinished work, by name."""
    return sorted(runs.glob(unfinished_name("*")))


def run_folders(folder: Path, part: str = "") -> list[Path]:
    """Folders below that are runs, by name; what is named like one is a damaged one at least."""
    names = [name for name in _names_in(folder) if name[0] != "." and part in name]
    return [folder / name for name in names if _ENDING.search(name) or is_run(folder / name)]


def is_run(folder: Path) -> bool:
    """Whether any file of a run lies there: without run.json it is a damaged one."""
    return not {RUN_FILE, *ALL_FILES}.isdisjoint(_names_in(folder))


def _names_in(folder: Path) -> list[str]:
    with reading(folder):
        try:
            return sorted(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError, ValueError):  # no file can be called so
            return []


def runs_of_key(folder: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache: those that a training need not make."""
    found = [read_run(path) for path in run_folders(folder, f"-{key[:8]}-s")]
    for run in found:
        if run.key[:8] != key[:8]:
            raise damaged_run(run.path / RUN_FILE, f"it is that of a run with {run.key[:8]}")
    return [run for run in found if run.key == key]


def remove_unfinished(runs: Path, key: str) -> None:
    """Drop what a writer that died left; one of this machine that lives is left in peace."""
    for folder in runs.glob(f".*-{key[:8]}-s*.tmp"):
        pid = folder.name.split(".")[-3]
        if not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def cache_of(run: RunResult, cache: str | Path | None = None) -> EmbeddingCache:
    """The complete cache that a run was trained on, and never another one."""
    return open_cache(find_cache(run.cache, run.path, cache))


def find_cache(about: Mapping[str, Any], path: Path, cache: str | Path | None = None) -> Path:
    """The folder of the cache with the fingerprint that the run at ``path`` says.

    It is ``cache``, or where the run says, or beside the runs under that name or as ``cache``.
    """
    recorded, beside, found = Path(about["path"]), path.absolute().parent.parent, []
    places = [recorded, beside / recorded.name, beside / "cache"]
    for folder in [Path(cache).expanduser()] if cache else places:
        try:
            fingerprint = read_plan(folder).fingerprint
        except GaamError as error:
            if cache:
                raise
            found.append(error.message)
            continue
        if fingerprint == about["fingerprint"]:
            return folder
        found.append(f"{folder}: another cache, {short_digest(fingerprint)}")
    raise CacheError(
        "that is not the cache that the run was trained on",
        expected=f"the cache with fingerprint {short_digest(about['fingerprint'])}",
        found="\n".join(found),
        where=f"the run {path.absolute()}",
        hint="name the folder of the cache with --cache",
    )
