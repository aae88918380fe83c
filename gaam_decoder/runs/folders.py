"""Folders of runs: their names, what lies in one, and where the cache of a run is."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import CacheError, GaamError
from gaam_cache.common.paths import absolute_path
from gaam_cache.store.files import digest_of, short_digest
from gaam_cache.store.plan import Plan, describe_state_deviation, read_plan
from gaam_cache.workers.leases import is_alive
from gaam_decoder.runs.result import ALL_FILES, RUN_FILE, RunResult, read_run

_ENDING = re.compile(
    r"-[0-9a-f]{8}-s\d[0-9a-fx_-]*\Z"
)  # how the names end that ``run_name`` gives
LEASE_FOLDER = ".leases"  # in a folder of runs: who trains what


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: readable in front, unambiguous behind."""
    front = "".join(
        c if c.isalnum() or c in "-_." else "_" for c in f"{attention}-{head}"
    )
    return f"{front[:80]}{ending(key, seeds)}"


def ending(key: str, seeds: Sequence[int]) -> str:
    """How the name of a run ends: by this a training finds what is there already."""
    contiguous = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if contiguous else "_".join(map(str, seeds))
    if len(text) > 40:
        text = f"{len(seeds)}x{digest_of(text.encode())[:8]}"
    return f"-{key[:8]}-s{text}"


def unfinished_folders(runs: Path) -> list[Path]:
    return sorted(runs.glob(".*.partial"))


def run_folders(folder: Path, names: str = "*") -> list[Path]:
    """Folders below that are runs, by name; what is named like one is a damaged one at least."""
    there = sorted(folder.glob(f"[!.]{names}"))
    return [path for path in there if _ENDING.search(path.name) or is_run(path)]


def is_run(folder: Path) -> bool:
    """Whether any file of a run lies there: without run.json it is a damaged one."""
    # a link to nothing is a file that is elsewhere
    return any(os.path.lexists(folder / name) for name in (RUN_FILE, *ALL_FILES))


def runs_of_key(folder: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache: those that a training need not make."""
    found = [read_run(path) for path in run_folders(folder, f"*-{key[:8]}-s*")]
    for run in found:
        if run.key[:8] != key[:8]:
            raise CacheError(
                f"the folder '{run.path.name}' has the name of another run",
                expected=f"a name that ends in '{ending(run.key, run.seeds)}'",
                found=f"one with {key[:8]}, which is looked for",
                where=str(run.path),
                hint="give it that name again, or move it out of the folder of runs",
            )
    return [run for run in found if run.key == key]


def remove_unfinished(runs: Path, key: str) -> None:
    """Drop what a writer that died left; one of this machine that lives is left in peace."""
    for folder in runs.glob(f".*-{key[:8]}-s*.tmp"):
        pid = folder.name.split(".")[-3]
        if not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def find_cache(
    about: Mapping[str, Any], path: Path, cache: str | Path | None = None
) -> Path:
    """The folder of a run's cache: ``cache``, or where the run says, or beside the runs."""
    recorded, found = Path(about["path"]), list[str]()
    # beside the folder of the runs, also of that which a link leads to
    beside = dict.fromkeys(
        (path.parent.parent, Path(os.path.realpath(path)).parent.parent)
    )
    places = [
        recorded,
        *(folder / name for folder in beside for name in (recorded.name, "cache")),
    ]
    for folder in [absolute_path(cache)] if cache else places:
        try:
            plan = read_plan(folder)
        except GaamError as error:
            if cache:
                raise
            found.append(error.message)
            continue
        if plan.fingerprint != about["fingerprint"]:
            found.append(f"{folder}: another cache, {short_digest(plan.fingerprint)}")
            continue
        difference = (
            describe_state_deviation(plan, Plan.from_dict(about["plan"]))
            if "plan" in about
            else None
        )
        if difference is None:
            return folder
        found.append(f"{folder}: the same encoder and rows, but {difference}")
    raise CacheError(
        "the cache that the run was trained on is not there",
        expected=f"the fingerprint {short_digest(about['fingerprint'])}",
        found="\n".join(found),
        where=f"the run {path}",
        hint="name the folder of the cache with --cache",
    )
