"""Folders of runs: how runs are named, which runs they hold, and where caches are."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gaam_cache.common.errors import CacheError, ConfigError, GaamError
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.store.files import check_writable, digest_of, short_digest
from gaam_cache.store.plan import (
    PLAN_FILE,
    Plan,
    describe_state_deviation,
    read_plan,
)
from gaam_cache.workers.leases import is_alive
from gaam_decoder.runs.files import ALL_FILES, RUN_FILE
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.records import CacheRecord
from gaam_decoder.runs.result import RunResult

# The endings that run_name() gives.
_ENDING = re.compile(r"-[0-9a-f]{8}-s\d[0-9a-fx_-]*\Z")
LEASE_FOLDER = ".leases"
"""Folder of the leases in a folder of runs: they say who trains what."""
_LONGEST_DECODER = 80
"""Characters of a decoder in the name of a run; a longer one is cut."""
_LONGEST_SEEDS = 40
"""Characters of a list of seeds; a longer one is named by its digest."""


def check_runs_folder(folder: Path) -> None:
    """Refuse a folder in which no run can be written, or that is a cache.

    Runs among the files of a cache would be copied, pushed and removed with it.

    Raises:
        ConfigError: the message says what is in the way.
    """
    check_writable(folder, option="--runs")
    if os.path.lexists(folder / PLAN_FILE):
        raise ConfigError(
            f"'{shown_path(folder)}' is a cache, and runs need a folder of their own",
            expected="--runs FOLDER, without a cache in it",
            found=f"{PLAN_FILE} in it",
            where=str(folder.absolute()),
            hint="name another folder with --runs; move runs that are in this one",
        )


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: the decoder for people, then the unique ``name_ending``.

    Args:
        attention: the mechanism.
        head: the head.
        key: hash of decoder, recipe and cache.
        seeds: of the run.
    """
    # other characters may be invalid in names of files
    decoder = "".join(
        character if character.isalnum() or character in "-_." else "_"
        for character in f"{attention}-{head}"
    )
    return f"{decoder[:_LONGEST_DECODER]}{name_ending(key, seeds)}"


def name_ending(key: str, seeds: Sequence[int]) -> str:
    """The end of a run's name, such as ``-1f9c2a7b-s0-9``, with its key and seeds.

    A training finds existing runs by it. Seeds that are not a range are listed, as in
    ``s0_3_7``; a long list is its number of seeds and a digest.
    """
    first = seeds[0]
    last = seeds[-1]
    if list(seeds) == list(range(first, last + 1)):
        seeds_text = f"{first}-{last}"
    else:
        seeds_text = "_".join(str(seed) for seed in seeds)
    if len(seeds_text) > _LONGEST_SEEDS:
        seeds_text = f"{len(seeds)}x{digest_of(seeds_text.encode())[:8]}"
    return f"-{_short_key(key)}-s{seeds_text}"


def _short_key(key: str) -> str:
    """The digits of a run's key that its name has."""
    return key[:8]


def unfinished_folders(runs: Path) -> list[Path]:
    """Folders of unfinished runs, ``.NAME.partial``, in a folder of runs."""
    return sorted(runs.glob(".*.partial"))


def unfinished_name(folder: Path) -> str:
    """The name that an unfinished run will have, from its folder ``.NAME.partial``."""
    return folder.name.removeprefix(".").removesuffix(".partial")


def run_folders(folder: Path, names: str = "*") -> list[Path]:
    """Run folders in a folder, sorted, whose names match the pattern ``names``.

    A folder with the name of a run counts, even if it is damaged.
    """
    paths = sorted(folder.glob(f"[!.]{names}"))
    return [path for path in paths if _ENDING.search(path.name) or is_run(path)]


def is_run(folder: Path) -> bool:
    """Whether the folder has any file of a run; without run.json the run is damaged."""
    # lexists: a broken link is a file of a run that is out of reach.
    return any(os.path.lexists(folder / name) for name in (RUN_FILE, *ALL_FILES))


def runs_of_key(folder: Path, key: str) -> list[RunResult]:
    """Finished runs in a folder with this key: a training need not make them again.

    The key is the hash of a decoder, its recipe and its cache.

    Raises:
        CacheError: a folder has the name of a run with another key.
    """
    short_key = _short_key(key)
    runs = [read_run(path) for path in run_folders(folder, f"*-{short_key}-s*")]
    for run in runs:
        if _short_key(run.key) != short_key:
            raise CacheError(
                f"the folder '{run.path.name}' has the name of another run",
                expected=f"a name that ends in '{name_ending(run.key, run.seeds)}'",
                found=f"a name with the key {short_key} of another run",
                where=str(run.path),
                hint="give it that name again, or move it out of the folder of runs",
            )
    # the first eight digits of two keys may agree
    return [run for run in runs if run.key == key]


def remove_temporary_folders(runs: Path, key: str) -> None:
    """Remove temporary folders of runs whose writers have died.

    Folders of live processes of this machine stay.

    Args:
        runs: the folder of runs.
        key: of the runs.
    """
    for folder in runs.glob(f".*-{_short_key(key)}-s*.tmp"):
        # a temporary name ends in the process that writes it: .PID.NUMBER.tmp
        pid = folder.name.split(".")[-3]
        if not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)


def find_cache(
    record: CacheRecord, path: Path, cache: str | Path | None = None
) -> Path:
    """The folder of a run's cache.

    Args:
        record: of the cache in run.json.
        path: the folder of the run.
        cache: the only folder to look at. By default the recorded folder is tried, then
            folders beside the folder of runs.

    Raises:
        CacheError: none of the folders has the states that the run was trained on.
    """
    folders = [absolute_path(cache)] if cache else _usual_folders(record, path)
    reasons: list[str] = []
    for folder in folders:
        try:
            plan = read_plan(folder)
        except GaamError as error:
            if cache:
                raise
            reasons.append(error.message)
            continue
        reason = _describe_difference(plan, record)
        if reason is None:
            return folder
        reasons.append(f"{folder}: {reason}")
    raise CacheError(
        "the cache that the run was trained on is not there",
        expected=f"the fingerprint {short_digest(record.fingerprint)}",
        found="\n".join(reasons),
        where=f"the run {path}",
        hint="name the folder of the cache with --cache",
    )


def _usual_folders(record: CacheRecord, path: Path) -> list[Path]:
    """Places of a run's cache: the recorded one, then others beside the runs."""
    recorded = Path(record.path)
    # A link may lead to the run: look beside the link and beside its target.
    real_path = Path(os.path.realpath(path))
    parents = dict.fromkeys((path.parent.parent, real_path.parent.parent))
    folders = [recorded]
    for parent in parents:
        folders += [parent / recorded.name, parent / "cache"]
    return folders


def _describe_difference(plan: Plan, record: CacheRecord) -> str | None:
    """How a cache differs from the one that a run records; None where it does not."""
    if plan.fingerprint != record.fingerprint:
        return f"another cache, {short_digest(plan.fingerprint)}"
    if record.plan is None:
        return None
    difference = describe_state_deviation(plan, Plan.from_dict(record.plan))
    if difference is None:
        return None
    return f"the same encoder and rows, but {difference}"
