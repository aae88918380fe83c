"""One item of a sweep: its seeds, group by group, and the run that holds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.engines.sharing.holder import Holder
from gaam_cache.engines.sharing.lease import Leases
from gaam_cache.errors import GaamWarning
from gaam_cache.format.digest import digest_of
from gaam_cache.format.refusals import storage_errors
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.run_folders import runs_of_key
from gaam_decoder.runs.run_writer import remove_unfinished
from gaam_decoder.runs.seed_result import SeedResult
from gaam_decoder.runs.track import track_seeds
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.fit_item import fit_item, fitted_engine
from gaam_decoder.training.items import Item, lacking_seeds
from gaam_decoder.training.publish import publish
from gaam_decoder.training.rows.data import Loaded, prepare_data
from gaam_decoder.training.tracker import Tracker
from gaam_decoder.training.train_group import train_group
from gaam_decoder.unfinished.seed_store import SeedStore, Work, work_groups


@dataclass(kw_only=True, slots=True)
class Shared:
    """What the items of a sweep have in common."""

    config: TrainConfig
    cache: EmbeddingCache
    device: torch.device
    tracker: Tracker
    leases: Leases
    on_run: Callable[[Path], None] = lambda path: None
    workers: int = 1
    """That share the seeds, as far as is known."""
    loaded: Loaded = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)


def work_name(item: Item) -> str:
    """One for all calls that share the key: other seeds may be asked for after a stop."""
    return f"{item.recipe.attention.name}-{item.key[:8]}"


def seed_store(runs: Path, item: Item) -> SeedStore:
    """Where finished seeds of an item wait for the others."""
    return SeedStore(runs, work_name(item), item.key)


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
    begun: _Begun | None = None
    while True:
        there = runs_of_key(runs, item.key)
        lacking = lacking_seeds(item, seeds, there)
        published = {seed for run in there for seed in run.seeds}
        if not lacking:
            seed_store(runs, item).remove(published)
            return None
        if item.recipe.fitted:
            if holder := _fit(item, shared):
                return holder
            continue
        if begun is None or set(begun.seeds) != set(lacking):
            begun = _Begun(item, lacking, published, shared, num_items)
        holder = begun.train_next()
        if holder is not None:
            return holder
        if begun.finished():
            if holder := _publish(begun, item, shared):
                return holder
            begun = None


def _fit(item: Item, shared: Shared) -> Holder | None:
    """Fit a head at once and publish its run: too short for anything that is kept."""
    lease = shared.leases.take(work_name(item))
    if isinstance(lease, Holder):
        return lease
    if lacking_seeds(item, [], runs_of_key(shared.config.runs, item.key)):

        def tell(done: int, text: str) -> None:
            shared.tracker.tell(item.key, f"{item}: {text}", done, new=1)

        shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
        data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
        result, fit = fit_item(item.spec, data, item.recipe, tell=tell)
        _track(item, [result], shared)
        remove_unfinished(shared.config.runs, item.key)
        engine = fitted_engine(shared.device)
        path = publish(item, [result], data, engine, shared.config, shared.cache, fit)
        shared.on_run(path)
    lease.done()
    return None


class _Begun:
    """The seeds of an item that no run has, as this process knows them."""

    def __init__(
        self, item: Item, seeds: list[int], published: set[int], shared: Shared, num_items: int
    ) -> None:
        self.seeds = seeds
        self._item = item
        self._shared = shared
        shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
        self.data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
        self._store = seed_store(shared.config.runs, item)
        chosen = choose_engine(
            item.spec,
            item.recipe,
            shared.device,
            num_seeds=len(seeds),
            num_rows=len(self.data.train),
            seed_batch=shared.config.seed_batch,
            compile=shared.config.compile,
        )
        chosen = _shared_out(chosen, len(seeds), shared.workers, num_items)
        while not self._plan(chosen, published):
            pass  # another trainer planned something meanwhile

    def _plan(self, chosen: Engine, published: set[int]) -> bool:
        """Take up what is there; whether the groups are those that all trainers know of."""
        work = self._store.load()
        self._results = {s: kept for s, kept in work.results.items() if s not in published}
        self.engine = _as_begun(work, chosen, str(self._item))
        self._groups, rest = work_groups(sorted(set(self.seeds) - set(self._results)), work)
        self._groups += groups_of(rest, self.engine.seed_batch)
        return self._store.begin(work, self.engine.to_dict(), self._groups)

    def finished(self) -> bool:
        """Whether every group is."""
        return all(set(g) <= set(self._results) or self._store.has(g) for g in self._groups)

    def results(self) -> list[SeedResult] | None:
        """Of the seeds asked for and others of their groups; None where some were damaged."""
        if not set(self.seeds) <= set(self._results):
            self._results |= self._store.load().results
        if not set(self.seeds) <= set(self._results):
            return None
        return [self._results[seed] for seed in sorted(self._results)]

    def train_next(self) -> Holder | None:
        """Train the first group that nobody trains; or who trains what is left."""
        holder = None
        for group in self._groups:
            if set(group) <= set(self._results) or self._store.has(group):
                continue
            name = f"{work_name(self._item)}-{digest_of(str(group).encode())[:8]}"
            lease = self._shared.leases.take(name)
            if isinstance(lease, Holder):
                holder = lease
                continue
            if not self._store.has(group):  # finished a moment before
                self._train(group)
            lease.done()
            return None
        return holder

    def _train(self, group: list[int]) -> None:
        item, shared = self._item, self._shared
        trained, compiled = train_group(
            item.spec,
            self.data,
            item.recipe,
            group,
            engine=self.engine,
            checkpoint=self._store.checkpoint(group),
            on_epoch=_teller(shared.tracker, item, group, len(self._results)),
            steps=shared.steps,
        )
        if self.engine.compiled and not compiled:
            self.engine = replace(self.engine, compiled=False, why="the compiler failed")
        _track(item, trained, shared)
        self._store.save(trained)
        self._results |= {result.seed: result for result in trained}


def _publish(begun: _Begun, item: Item, shared: Shared) -> Holder | None:
    """Publish all that is finished as one run, unless somebody else does."""
    lease = shared.leases.take(work_name(item))
    if isinstance(lease, Holder):
        return lease
    runs = shared.config.runs
    there = {seed for run in runs_of_key(runs, item.key) for seed in run.seeds}
    if not set(begun.seeds) <= there and (results := begun.results()) is not None:
        results = [result for result in results if result.seed not in there]
        remove_unfinished(runs, item.key)
        path = publish(item, results, begun.data, begun.engine, shared.config, shared.cache)
        seed_store(runs, item).remove(there | {result.seed for result in results})
        shared.on_run(path)
    lease.done()
    return None


def _shared_out(engine: Engine, num_seeds: int, workers: int, num_items: int) -> Engine:
    """Fewer seeds together, where workers would have nothing to do."""
    most = -(-num_seeds // -(-workers // num_items))
    if most >= engine.seed_batch:
        return engine
    why = f"{engine.why}; seeds shared out to {workers} workers"
    return replace(engine, seed_batch=most, why=why)


def _track(item: Item, results: list[SeedResult], shared: Shared) -> None:
    """Curves of finished seeds, where they are asked for."""
    if shared.config.track == "tensorboard":
        folder = shared.config.runs / "tensorboard" / work_name(item)
        with storage_errors(folder, option="--runs"):
            track_seeds(folder, results)


def _teller(
    tracker: Tracker, item: Item, group: list[int], seeds_done: int
) -> Callable[[int, float], None]:
    """What is said after every epoch of a group."""
    epochs, before = item.recipe.epochs, 0

    def on_epoch(epoch: int, loss: float) -> None:
        nonlocal before
        new, before = (epoch - before) * len(group), epoch
        text = f"{item} seed{'s' * (len(group) > 1)} {spell_numbers(group)}"
        text += f" epoch {epoch}/{epochs} loss {loss:.3f}"
        tracker.tell(item.key, text, seeds_done * epochs + epoch * len(group), new)

    return on_epoch


def _as_begun(work: Work, chosen: Engine, name: str) -> Engine:
    """The engine that the work was begun with, where it can go on so: that gives the same bits."""
    fields = chosen.to_dict().keys()  # of another version of gaam there may be others
    begun = [Engine(**engine) for engine in work.engines if engine.keys() == fields]
    for engine in begun:
        if (engine.kind, engine.dtype) == (chosen.kind, chosen.dtype):
            return replace(engine, device=chosen.device)
    if begun:
        warnings.warn(
            f"{name}: begun on {begun[0].device}, goes on on {chosen.device}; the bits may "
            "differ from those of a training that was not stopped",
            GaamWarning,
            stacklevel=2,
        )
    return chosen
