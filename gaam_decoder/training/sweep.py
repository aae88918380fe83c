"""Mechanisms x seeds -> runs; what exists is not trained again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.engines._claims import Claims, Holder
from gaam_cache.errors import GaamWarning
from gaam_cache.store.files import make_folder, storage_errors
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import CLAIM_FOLDER, runs_of_key
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import choose
from gaam_decoder.runs.writing import temporary_runs
from gaam_decoder.training.failures import check_failures
from gaam_decoder.training.finals import apart
from gaam_decoder.training.items import Item, families_of, lacking_seeds, plan_items, seeds_of
from gaam_decoder.training.seed_groups import Shared, work_name
from gaam_decoder.training.tracker import Tracker
from gaam_decoder.training.train_item import train_item
from gaam_decoder.training.wanted import reporting_items, tried_items

WINNERS = "winners"
"""Stands in the tracker for items that are not known before the seeds that choose are trained."""
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others train."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What came of a sweep."""

    runs: list[RunResult]
    """That together hold the seeds asked for, in the order of the mechanisms; before them those
    that were trained to choose."""
    left: str | None = None
    """Who trains what is left; None where nothing is."""


def sweep(
    config: TrainConfig,
    tracker: Tracker,
    on_run: Callable[[Path], None],
    *,
    workers: int = 1,
    waits: bool = True,
) -> Swept:
    """Train what nobody else trains of all that a config asks for.

    Args:
        config: of the training.
        tracker: told how far it is.
        on_run: called with the folder of every run that this process publishes.
        workers: that share the seeds, as far as is known.
        waits: until all seeds are there, whoever trains them; else until others are at work on all
            that is left. What chooses between rates is waited for in any case.

    Raises:
        GaamError: as ``train``.
    """
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    with Claims(config.runs / CLAIM_FOLDER) as claims:
        shared = Shared(
            config=config,
            cache=cache,
            device=device,
            tracker=tracker,
            claims=claims,
            on_run=on_run,
            workers=workers,
        )
        if config.tune_seeds is None:
            return _trained(items, config.seeds, shared, waits=waits)
        evaluated, finals = apart(items, config)
        winners = len(families_of(evaluated)) + len(families_of(finals))
        tracker.expect({WINNERS: winners * len(config.seeds) * config.epochs})
        tried = tried_items(items, config)
        tuned = _trained(tried, config.tune_seeds, shared, waits=True).runs
        chosen = choose(tuned, config.tune_seeds)
        check_failures([run for run in tuned if run.key in chosen.unchosen], config.tune_seeds)
        tracker.forget(WINNERS)
        left = reporting_items(items, config, tuned, chosen)
        known = {run.path for run in tuned}
        reported = _trained(left, config.seeds, shared, waits=waits)
        new = [run for run in reported.runs if run.path not in known]
        return Swept(runs=tuned + new, left=reported.left)


def _trained(items: Sequence[Item], seeds: Sequence[int], shared: Shared, *, waits: bool) -> Swept:
    """Runs that together hold these seeds of the items, those that lacked trained."""
    runs, tracker = shared.config.runs, shared.tracker
    found = {item.key: runs_of_key(runs, item.key) for item in items}
    for item in items:
        _warn_of_other_code(item, found[item.key])
    todo = {item.key: lacking_seeds(item, seeds, found[item.key]) for item in items}
    tracker.expect({item.key: len(todo[item.key]) * item.epochs for item in items})
    waiting = [item for item in items if todo[item.key] or _left_behind(runs, item)]
    if waiting:
        with storage_errors(runs / CLAIM_FOLDER, option="--runs"):
            make_folder(runs)
    names = {item.key: work_name(item) for item in items}
    pause = SHORTEST_PAUSE_SECONDS
    holders: dict[str, Holder] = {}
    while waiting:
        postponed = []
        for item in waiting:
            holder = train_item(item, list(seeds), shared, num_items=len(items))
            found[item.key] = runs_of_key(runs, item.key)
            if holder is None:
                tracker.finish(item.key)
                pause = SHORTEST_PAUSE_SECONDS
            else:
                postponed.append(item)
                holders[item.key] = holder
        waiting = postponed
        if not waiting:
            break
        alive = set() if waits else shared.claims.alive()
        if alive and all(_is_held(names[item.key], alive) for item in waiting):
            # not before all of ours is done: of several that leave, the last sees all
            found |= {item.key: runs_of_key(runs, item.key) for item in waiting}
            waiting = [item for item in waiting if lacking_seeds(item, seeds, found[item.key])]
            break
        key = waiting[0].key
        tracker.tell(key, f"{waiting[0]}: waiting for {holders[key].in_words()}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    shared.claims.clear_dead()
    return Swept(
        runs=[
            run
            for item in items
            for run in found[item.key]
            if set(run.seeds) & set(seeds_of(item, seeds))
        ],
        left=_left(waiting, holders) if waiting else None,
    )


def _is_held(work: str, names: set[str]) -> bool:
    """Whether an item, or a group of its seeds, is among the names of claims."""
    return any(name == work or name.startswith(f"{work}-") for name in names)


def _left(waiting: Sequence[Item], holders: dict[str, Holder]) -> str:
    """What others train."""
    first = waiting[0]
    others = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return f"{first}{others} ({holders[first.key].in_words()})"


def _warn_of_other_code(item: Item, runs: list[RunResult]) -> None:
    """Say which seeds are there, but were trained before a mechanism, head or loss was changed."""
    code = item.recipe.code()
    if other := [run for run in runs if run.environment["code"] != code]:
        before = other[0].environment["code"]
        what = ", ".join(name for name in code if code[name] != before.get(name))
        warnings.warn(
            f"{item}: seeds {spell_numbers(sorted({s for run in other for s in run.seeds}))} were "
            f"trained by other code than there is now of {what}: they are kept; to train them "
            f"again remove {', '.join(str(run.path) for run in other)}",
            GaamWarning,
            stacklevel=3,
        )


def _left_behind(runs: Path, item: Item) -> bool:
    """Whether a kill after a run was published left something to tidy up."""
    return any(runs.glob(f".{work_name(item)}.*")) or any(temporary_runs(runs, item.key))
