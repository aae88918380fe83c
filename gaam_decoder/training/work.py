"""One item of a sweep: its seeds, group by group, and the run that holds them.

Several trainers may be at it. A claim for the item says who plans, fits or publishes, and a claim
for each group who trains it; whoever finds all seeds finished publishes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.engines._claims import Claims, Holder
from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.runs.trackers import track_seeds
from gaam_decoder.runs.writing import remove_unfinished
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Unfinished, claim_of
from gaam_decoder.training.data import prepare_data, warn_of_order
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import Item, lacking_seeds
from gaam_decoder.training.group import train_group
from gaam_decoder.training.probe import fit_item, fitted_engine
from gaam_decoder.training.record import publish


class Tracker:
    """Seed-epochs done over all items.

    Args:
        report: called with (done, in all, what is going on, new of this process since the last).
    """

    def __init__(self, report: Callable[[int, int, str, int], None]) -> None:
        self._report = report
        self._planned: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """What was done of each when more of it was expected."""

    def expect(self, planned: dict[str, int]) -> None:
        """So many seed-epochs more of each are to be done."""
        for key, count in planned.items():
            self._planned[key] = self._planned.get(key, 0) + count
            self._before[key] = self._done.setdefault(key, 0)

    def forget(self, key: str) -> None:
        """What was expected in its place is known now."""
        del self._planned[key], self._done[key]

    def tell(self, key: str, text: str, done: int | None = None, new: int = 0) -> None:
        """Say what is going on with an item, and how many of its seed-epochs are done."""
        if done is not None:
            self._done[key] = min(self._before[key] + done, self._planned[key])
        self._report(sum(self._done.values()), sum(self._planned.values()), text, new)

    def finish(self, key: str) -> None:
        """All of it is done, here or elsewhere."""
        self._done[key] = self._planned[key]


@dataclass(kw_only=True, slots=True)
class Shared:
    """What the items of a sweep have in common."""

    config: TrainConfig
    cache: EmbeddingCache
    device: torch.device
    tracker: Tracker
    claims: Claims
    on_run: Callable[[Path], None] = lambda path: None
    workers: int = 1
    """That share the seeds, as far as is known."""
    loaded: Loaded = field(init=False)
    steps: Steps = field(default_factory=Steps)

    def __post_init__(self) -> None:
        """Rows take the share of the memory that the config allows."""
        self.loaded = Loaded(self.config.memory_share)


def work_name(item: Item) -> str:
    """One for all calls that share the key: other seeds may be asked for after a stop."""
    return f"{item.recipe.attention.name}-{item.key[:8]}"


def train_item(item: Item, seeds: list[int], shared: Shared, num_items: int = 1) -> Holder | None:
    """Train what nobody else trains of an item, which workers share with so many others.

    Returns:
        Who is at work on what is left; None where runs hold all seeds.
    """
    runs = shared.config.runs
    work: _Work | None = None
    while True:
        there = runs_of_key(runs, item.key)
        lacking = lacking_seeds(item, seeds, there)
        act: Callable[[], None]
        if not lacking:
            if not _unfinished(item, shared).folder.exists():
                return None
            published = {seed for run in there for seed in run.seeds}
            act = partial(_tidy, item, shared, published)
        elif item.recipe.fitted:
            act = partial(_fit, item, shared)
        elif work is None or work.seeds != lacking:
            work = _Work(item, lacking, shared)
            act = partial(work.plan, num_items)
        elif work.finished():
            act, work = work.publish, None
        elif holder := work.train_next():
            return holder
        else:
            continue
        claim = shared.claims.take(work_name(item))  # only one may do this at a time
        if isinstance(claim, Holder):
            return claim
        try:
            act()
        finally:
            claim.done()
        if not lacking:
            return None


def _unfinished(item: Item, shared: Shared) -> Unfinished:
    """Where finished seeds of an item wait for the others."""
    about = {"title": str(item), "epochs": item.epochs}
    return Unfinished(shared.config.runs, work_name(item), item.key, about)


def _tidy(item: Item, shared: Shared, published: set[int]) -> None:
    """Remove what is kept of seeds that runs have; all of it, if nobody else is at work."""
    others = shared.claims.others_at_work(f"{work_name(item)}-")
    _unfinished(item, shared).remove(published, others=others)


def _fit(item: Item, shared: Shared) -> None:
    """Fit a head at once and publish its run: too short for anything that is kept."""
    config = shared.config
    if not lacking_seeds(item, [], runs_of_key(config.runs, item.key)):
        return  # a moment ago

    def tell(done: int, text: str) -> None:
        shared.tracker.tell(item.key, f"{item}: {text}", done, new=1)

    shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
    data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
    result, fit = fit_item(item.spec, data, item.recipe, tell=tell)
    track_seeds(config.track, config.runs, work_name(item), [result])
    remove_unfinished(config.runs, item.key)
    engine = fitted_engine(shared.device)
    shared.on_run(publish(item, [result], data, engine, config, shared.cache, fit))


class _Work:
    """The seeds of an item that no run has, as this process knows them."""

    def __init__(self, item: Item, seeds: list[int], shared: Shared) -> None:
        self.seeds = seeds
        self._item = item
        self._shared = shared
        self._unfinished = _unfinished(item, shared)
        shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
        self._data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
        warn_of_order(self._data, item.recipe, str(item), shared.loaded.told)

    def _published(self) -> set[int]:
        runs = runs_of_key(self._shared.config.runs, self._item.key)
        return {seed for run in runs for seed in run.seeds}

    def plan(self, num_items: int) -> None:
        """Take up what is there, and say which seeds are trained together."""
        item, shared = self._item, self._shared
        asked = shared.config.seed_batch
        chosen = choose_engine(
            item.spec,
            item.recipe,
            shared.device,
            num_seeds=len(self.seeds),
            num_rows=len(self._data.train),
            seed_batch=asked,
            compile=shared.config.compile,
        )
        # fewer seeds together, where workers would have nothing to do
        most = -(-len(self.seeds) // -(-shared.workers // num_items))
        if asked is None and shared.workers > 1 and most < chosen.seed_batch:
            why = f"{chosen.why}; seeds shared out to {shared.workers} workers"
            chosen = replace(chosen, seed_batch=most, why=why)
        left, published = self._unfinished.load(), self._published()
        self._results = {s: kept for s, kept in left.results.items() if s not in published}
        self._engine = _as_begun(left.engines, chosen, str(item))
        lacking = sorted(set(self.seeds) - set(self._results) - published)
        self._groups, rest = left.groups(lacking, asked)
        self._groups += groups_of(rest, min(chosen.seed_batch, self._engine.seed_batch))
        self._unfinished.begin(self._engine.to_dict(), self._groups)

    def _has(self, group: list[int]) -> bool:
        return set(group) <= set(self._results) or self._unfinished.has(group)

    def finished(self) -> bool:
        """Whether every group is."""
        return all(map(self._has, self._groups))

    def train_next(self) -> Holder | None:
        """Train the first group that nobody trains; or who trains what is left."""
        holder = None
        for group in self._groups:
            if self._has(group):
                continue
            claim = self._shared.claims.take(claim_of(work_name(self._item), group))
            if isinstance(claim, Holder):
                holder = claim
                continue
            if not self._unfinished.has(group):  # finished a moment before
                self._train(group)
            claim.done()
            return None
        return holder

    def _train(self, group: list[int]) -> None:
        item, shared, recipe = self._item, self._shared, self._item.recipe
        finished, before = len(self._results), 0

        def on_epoch(epoch: int, loss: float) -> None:
            nonlocal before
            new, before = (epoch - before) * len(group), epoch
            text = f"{item} seed{'s' * (len(group) > 1)} {spell_numbers(group)}"
            text += f" epoch {epoch}/{recipe.epochs} loss {loss:.3f}"
            done = finished * recipe.epochs + epoch * len(group)
            shared.tracker.tell(item.key, text, done, new)

        trained, compiled = train_group(
            item.spec,
            self._data,
            recipe,
            group,
            engine=self._engine,
            checkpoint=self._unfinished.checkpoint(group),
            on_epoch=on_epoch,
            steps=shared.steps,
        )
        if self._engine.compiled and not compiled:
            self._engine = replace(self._engine, compiled=False, why="the compiler failed")
        track_seeds(shared.config.track, shared.config.runs, work_name(item), trained)
        self._unfinished.save(trained)
        self._results |= {result.seed: result for result in trained}

    def publish(self) -> None:
        """Publish all that is finished as one run, unless somebody else did."""
        item, shared, there = self._item, self._shared, self._published()
        if set(self.seeds) <= there:
            return
        if not set(self.seeds) <= set(self._results):  # others trained some
            self._results |= self._unfinished.load().results
        if not set(self.seeds) <= set(self._results):
            return  # some were damaged
        results = [self._results[seed] for seed in sorted(self._results) if seed not in there]
        remove_unfinished(shared.config.runs, item.key)
        path = publish(item, results, self._data, self._engine, shared.config, shared.cache)
        _tidy(item, shared, there | {result.seed for result in results})
        shared.on_run(path)


def _as_begun(begun: list[dict[str, Any]], chosen: Engine, name: str) -> Engine:
    """The engine that the work was begun with, where it can go on so: that gives the same bits."""
    for engine in (Engine(**values) for values in begun):
        if (engine.kind, engine.dtype) == (chosen.kind, chosen.dtype):
            return replace(engine, device=chosen.device)
    if begun:
        warnings.warn(
            f"{name}: begun on {begun[0]['device']}, goes on on {chosen.device}; the bits may "
            "differ from those of a training that was not stopped",
            GaamWarning,
            stacklevel=2,
        )
    return chosen
