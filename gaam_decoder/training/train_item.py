"""One item of a sweep: its seeds, group by group, and the run that holds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gaam_cache.engines._claims import Holder
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.runs.writing import remove_unfinished
from gaam_decoder.training.fit_item import fit_item, fitted_engine
from gaam_decoder.training.items import Item, lacking_seeds
from gaam_decoder.training.publish import publish
from gaam_decoder.training.rows.data import prepare_data
from gaam_decoder.training.seed_groups import SeedGroups, Shared, seed_store, track, work_name


def train_item(item: Item, seeds: list[int], shared: Shared, num_items: int = 1) -> Holder | None:
    """Train what nobody else trains of an item; whoever finds all seeds finished publishes them.

    Args:
        item: decoder and recipe.
        seeds: those asked for.
        shared: the rest of the sweep.
        num_items: that workers share.

    Returns:
        Who is at work on what is left; None where runs hold all seeds.
    """
    runs = shared.config.runs
    begun: SeedGroups | None = None
    while True:
        there = runs_of_key(runs, item.key)
        lacking = lacking_seeds(item, seeds, there)
        if lacking and item.recipe.fitted:
            holder = _alone(item, shared, partial(_fit, item, shared))
        elif not lacking:
            if not seed_store(runs, item).there():
                return None
            published = {seed for run in there for seed in run.seeds}
            return _alone(item, shared, partial(_tidy, item, published, shared))
        elif begun is None or set(begun.seeds) != set(lacking):
            begun = SeedGroups(item, lacking, shared)
            holder = _alone(item, shared, partial(begun.plan, num_items))
        elif begun.finished():
            holder = _alone(item, shared, partial(_publish, begun, item, shared))
            begun = None
        else:
            holder = begun.train_next()
        if holder is not None:
            return holder


def _alone(item: Item, shared: Shared, act: Callable[[], None]) -> Holder | None:
    """Do what only one may do at a time with an item; or say who does."""
    claim = shared.claims.take(work_name(item))
    if isinstance(claim, Holder):
        return claim
    try:
        act()
    finally:
        claim.done()
    return None


def _fit(item: Item, shared: Shared) -> None:
    """Fit a head at once and publish its run: too short for anything that is kept."""
    if not lacking_seeds(item, [], runs_of_key(shared.config.runs, item.key)):
        return  # a moment ago

    def tell(done: int, text: str) -> None:
        shared.tracker.tell(item.key, f"{item}: {text}", done, new=1)

    shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
    data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
    result, fit = fit_item(item.spec, data, item.recipe, tell=tell)
    track(item, [result], shared)
    remove_unfinished(shared.config.runs, item.key)
    engine = fitted_engine(shared.device)
    path = publish(item, [result], data, engine, shared.config, shared.cache, fit)
    shared.on_run(path)


def _publish(begun: SeedGroups, item: Item, shared: Shared) -> None:
    """Publish all that is finished as one run, unless somebody else did."""
    runs = shared.config.runs
    there = {seed for run in runs_of_key(runs, item.key) for seed in run.seeds}
    if set(begun.seeds) <= there or (results := begun.results()) is None:
        return
    results = [result for result in results if result.seed not in there]
    remove_unfinished(runs, item.key)
    path = publish(item, results, begun.data, begun.engine, shared.config, shared.cache)
    _tidy(item, there | {result.seed for result in results}, shared)
    shared.on_run(path)


def _tidy(item: Item, published: set[int], shared: Shared) -> None:
    """Remove what is kept of seeds that runs have; all of it, if nobody else is at work."""
    others = shared.claims.others_at_work(f"{work_name(item)}-")
    seed_store(shared.config.runs, item).remove(published, others=others)
