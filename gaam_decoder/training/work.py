"""One item of a sweep: its seeds, group by group, and the run that holds them.

Several trainers may be at it. A claim for the item says who plans, fits or publishes, and a claim
for each group who trains it; whoever finds all seeds finished publishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.engines._claims import Claims, Holder
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.runs.trackers import track_seeds
from gaam_decoder.runs.writing import remove_unfinished
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Unfinished, claim_of
from gaam_decoder.training.data import TrainData, prepare_data, warn_of_order
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import Item, lacking_seeds
from gaam_decoder.training.group import train_group
from gaam_decoder.training.probe import fit_item
from gaam_decoder.training.record import publish


class Tracker:
    """Seed-epochs done over all items.

    Args:
        report: called with (done, in all, what is going on, new of this process since the last).
    """

    def __init__(self, report: Callable[[int, int, str, int], None]) -> None:
        self._report = report
        self._planned: Mapping[str, int] = {}
        self._done: dict[str, int] = {}
        self._before = self._later = 0

    def expect(self, planned: Mapping[str, int], later: int = 0) -> None:
        """What was expected is done; now come these of each item, and later so many of others."""
        self._before += sum(self._planned.values())
        self._planned, self._done, self._later = planned, dict.fromkeys(planned, 0), later

    def tell(self, key: str, text: str, done: int = 0, new: int = 0) -> None:
        """Say what is going on with an item, and how many of its seed-epochs are done."""
        self._done[key] = min(max(done, self._done[key]), self._planned[key])
        total = self._before + sum(self._planned.values()) + self._later
        self._report(self._before + sum(self._done.values()), total, text, new)

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
    loaded: Loaded
    on_run: Callable[[Path], None]
    workers: int
    """That share the seeds, as far as is known."""
    steps: Steps = field(default_factory=Steps)


def work_name(item: Item) -> str:
    """One for all calls that share the key: other seeds may be asked for after a stop."""
    return f"{item.recipe.attention.name}-{item.key[:8]}"


def unfinished_of(item: Item, runs: Path) -> Unfinished:
    """Where finished seeds of an item wait for the others."""
    about = {"title": str(item), "epochs": item.epochs}
    return Unfinished(runs, work_name(item), item.key, about)


def train_item(item: Item, seeds: Sequence[int], shared: Shared, num_items: int) -> Holder | None:
    """Train what nobody else trains of an item, which workers share with so many others.

    Returns:
        Who is at work on what is left; None where runs hold all seeds.
    """
    runs = shared.config.runs
    work: _Work | None = None
    while lacking := lacking_seeds(item, seeds, runs_of_key(runs, item.key)):
        act: Callable[[], None]
        if item.recipe.fitted:
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
        if holder := _alone(item, shared, act):
            return holder
    unfinished = unfinished_of(item, runs)
    if not unfinished.folder.exists():
        return None

    def tidy() -> None:
        others = shared.claims.others_at_work(f"{work_name(item)}-")
        unfinished.remove(published_seeds(item, runs), others=others)

    return _alone(item, shared, tidy)


def _alone(item: Item, shared: Shared, act: Callable[[], None]) -> Holder | None:
    """Do what only one may do at a time; or who is at it."""
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
    config = shared.config
    if published_seeds(item, config.runs):
        return  # a moment ago

    def tell(done: int, text: str) -> None:
        shared.tracker.tell(item.key, f"{item}: {text}", done, new=1)

    shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
    data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
    result, fit, engine = fit_item(item.spec, data, item.recipe, tell=tell)
    track_seeds(config.track, config.runs, work_name(item), [result])
    remove_unfinished(config.runs, item.key)
    shared.on_run(publish(item, [result], data, engine, config, shared.cache, fit))


class _Work:
    """The seeds of an item that no run has, as this process knows them."""

    def __init__(self, item: Item, seeds: list[int], shared: Shared) -> None:
        self.seeds = seeds
        self._item = item
        self._shared = shared
        self._unfinished = unfinished_of(item, shared.config.runs)
        shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
        self._data = self._data_of(seeds[0])
        warn_of_order(self._data, item.recipe, str(item), shared.loaded.told)

    def _data_of(self, seed: int) -> TrainData:
        shared = self._shared
        return prepare_data(shared.cache, self._item.recipe, shared.device, shared.loaded, seed)

    def plan(self, num_items: int) -> None:
        """Take up what is there, and say which seeds are trained together.

        Seeds are in groups as they were when the work was begun: first those at work, then those
        that were planned together and of which nothing is there.
        """
        item, shared, asked = self._item, self._shared, self._shared.config.seed_batch
        chosen = choose_engine(
            item.spec,
            item.recipe,
            shared.device,
            num_seeds=len(self.seeds),
            num_rows=len(self._data.train),
            seed_batch=asked,
            compile=shared.config.compile,
        )
        if item.recipe.val_folds is not None:  # each has rows of its own
            chosen = replace(chosen, seed_batch=1, why=f"{chosen.why}; each holds out other rows")
        # fewer seeds together, where workers would have nothing to do
        most = -(-len(self.seeds) // -(-shared.workers // num_items))
        if asked is None and shared.workers > 1 and most < chosen.seed_batch:
            why = f"{chosen.why}; seeds shared out to {shared.workers} workers"
            chosen = replace(chosen, seed_batch=most, why=why)
        published = published_seeds(item, shared.config.runs)
        results, files = self._unfinished.load()
        self._results = {seed: one for seed, one in results.items() if seed not in published}
        # how it was begun, where it can go on so: that gives the same bits
        engines = [Engine(**file["engine"]) for file in files]
        same = [e for e in engines if (e.kind, e.dtype) == (chosen.kind, chosen.dtype)]
        self._engine = replace(same[0], device=chosen.device) if same else chosen
        left = set(self.seeds) - set(self._results) - published
        self._groups: list[list[int]] = []
        for file in files:
            group = set(file["seeds"])
            wanted = left & group if file.get("epochs_done") else left >= group
            if wanted and len(group) <= (asked or len(group)):
                self._groups.append(file["seeds"])
                left -= group
        size = min(chosen.seed_batch, self._engine.seed_batch)
        self._groups += groups_of(sorted(left), size)
        self._unfinished.begin(self._engine.to_dict(), self._groups)

    def _has(self, group: list[int]) -> bool:
        return set(group) <= set(self._results) or self._unfinished.group(group).done

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
            if not self._has(group):  # finished a moment before
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

        file = self._unfinished.group(group)
        trained, compiled = train_group(
            item.spec,
            self._data if recipe.val_folds is None else self._data_of(group[0]),
            recipe,
            group,
            engine=self._engine,
            checkpoint=file,
            on_epoch=on_epoch,
            steps=shared.steps,
        )
        if self._engine.compiled and not compiled:
            self._engine = replace(self._engine, compiled=False, why="the compiler failed")
        track_seeds(shared.config.track, shared.config.runs, work_name(item), trained)
        file.finish(trained)
        self._results |= {result.seed: result for result in trained}

    def publish(self) -> None:
        """Publish all that is finished as one run, unless somebody else did."""
        item, shared = self._item, self._shared
        there = published_seeds(item, shared.config.runs)
        if set(self.seeds) <= there:
            return
        if not set(self.seeds) <= set(self._results):  # others trained some
            self._results |= self._unfinished.load()[0]
        if not set(self.seeds) <= set(self._results):
            return  # some were damaged
        results = [self._results[seed] for seed in sorted(self._results) if seed not in there]
        remove_unfinished(shared.config.runs, item.key)
        args = self._data, self._engine, shared.config, shared.cache
        shared.on_run(publish(item, results, *args))


def published_seeds(item: Item, runs: Path) -> set[int]:
    """Seeds of an item that runs have."""
    return {seed for run in runs_of_key(runs, item.key) for seed in run.seeds}
