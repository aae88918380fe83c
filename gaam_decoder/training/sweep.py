"""Mechanisms x seeds -> runs; what exists is not trained again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_folders import runs_of_key
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.runs.run_writer import remove_unfinished, temporary_runs
from gaam_decoder.runs.track import check_tracker
from gaam_decoder.runs.tuning import choose
from gaam_decoder.training.failures import check_failures
from gaam_decoder.training.items import Item, families_of, lacking_seeds, plan_items, seeds_of
from gaam_decoder.training.tracker import Progress, Tracker
from gaam_decoder.training.train_item import Shared, seed_store, train_item, work_name
from gaam_decoder.unfinished.claim import Claim

WINNERS = "winners"
"""Stands in the tracker for items that are not known before the seeds that choose are trained."""


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] = lambda run: None,
) -> list[RunResult]:
    """Train every mechanism of a config over its seeds.

    Runs that exist with the same mechanism, recipe and cache are kept, and only seeds that they
    lack are trained. A seed that was finished before an interruption is not trained again.

    With ``tune_seeds`` these train every learning rate and weight decay, and ``seeds`` only that of
    each row that has the best mean validation accuracy.

    Args:
        config: mechanisms, seeds, recipe, protocol, folders.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).
        on_run: called with every run when it is finished.

    Returns:
        The runs that together hold the seeds asked for, in the order of the mechanisms; before
        them those that were trained to choose.

    Raises:
        ConfigError: an argument does not fit the cache.
        NumericsError: a seed failed of every candidate, so that nothing can be chosen.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
        StorageError: the file system refused; finished seeds are kept.
    """
    report = progress or (lambda done, total, text: None)
    check_tracker(config.track)
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    shared = Shared(config=config, cache=cache, device=device, tracker=Tracker(report))
    if config.tune_seeds is None:
        return _trained(items, config.seeds, shared, on_run)
    candidates = families_of(items)
    shared.tracker.expect({WINNERS: len(candidates) * len(config.seeds) * config.epochs})
    tried = [item for family in candidates for item in family]
    tuned = _trained(tried, config.tune_seeds, shared, on_run)
    chosen = choose(tuned, config.tune_seeds)
    check_failures([run for run in tuned if run.key in chosen.unchosen], config.tune_seeds)
    shared.tracker.forget(WINNERS)
    left = [item for item in items if item.key in chosen.tunings or item not in tried]
    known = {run.path for run in tuned}
    reported = _trained(left, config.seeds, shared, on_run)
    return tuned + [run for run in reported if run.path not in known]


def _trained(
    items: Sequence[Item],
    seeds: Sequence[int],
    shared: Shared,
    on_run: Callable[[RunResult], None],
) -> list[RunResult]:
    """Runs that together hold these seeds of the items, those that lacked trained."""
    runs, tracker = shared.config.runs, shared.tracker
    found = {item.key: runs_of_key(runs, item.key) for item in items}
    for item in items:
        _warn_of_other_code(item, found[item.key])
    todo = {item.key: lacking_seeds(item, seeds, found[item.key]) for item in items}
    tracker.expect({item.key: len(todo[item.key]) * item.epochs for item in items})
    waiting = [item for item in items if todo[item.key] or _left_behind(runs, item)]
    patient = False
    while waiting:
        postponed = []
        for item in waiting:
            with Claim(runs, work_name(item)) as claim:
                if patient:
                    claim.wait(partial(tracker.tell, item.key, f"{item}: trained elsewhere"))
                elif not claim.take():
                    postponed.append(item)
                    continue
                # another process may have finished some since they were listed
                if claim.sole:
                    remove_unfinished(runs, item.key)
                there = runs_of_key(runs, item.key)
                published = {seed for run in there for seed in run.seeds}
                if lacking := lacking_seeds(item, seeds, there):
                    on_run(read_run(train_item(item, lacking, published, shared)))
                else:
                    seed_store(runs, item).remove_if_in(published)
            found[item.key] = runs_of_key(runs, item.key)
            tracker.finish(item.key)
        waiting, patient = postponed, True
    return [
        run
        for item in items
        for run in found[item.key]
        if set(run.seeds) & set(seeds_of(item, seeds))
    ]


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
