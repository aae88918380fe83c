"""The seeds of an item that no run has: in which groups they are trained, and what is finished."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.engines._claims import Claims, Holder
from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.runs.trackers import track_seeds
from gaam_decoder.runs.unfinished import SeedStore, Work, claim_of
from gaam_decoder.runs.writing import SeedResult
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.items import Item
from gaam_decoder.training.reading import warn_of_order
from gaam_decoder.training.rows.data import prepare_data
from gaam_decoder.training.rows.loaded import Loaded
from gaam_decoder.training.tracker import Tracker
from gaam_decoder.training.train_group import train_group


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


def seed_store(runs: Path, item: Item) -> SeedStore:
    """Where finished seeds of an item wait for the others."""
    about = {"title": str(item), "epochs": item.epochs}
    return SeedStore(runs, work_name(item), item.key, about)


class SeedGroups:
    """The seeds of an item that no run has, as this process knows them."""

    def __init__(self, item: Item, seeds: list[int], shared: Shared) -> None:
        self.seeds = seeds
        self._item = item
        self._shared = shared
        self._store = seed_store(shared.config.runs, item)
        shared.tracker.tell(item.key, f"{item}: reading and checking the cache")
        self.data = prepare_data(shared.cache, item.recipe, shared.device, shared.loaded)
        warn_of_order(self.data, item.recipe, str(item), shared.loaded.told)

    def plan(self, num_items: int) -> None:
        """Take up what is there, and say which seeds are trained together; one at a time."""
        item, shared = self._item, self._shared
        chosen = choose_engine(
            item.spec,
            item.recipe,
            shared.device,
            num_seeds=len(self.seeds),
            num_rows=len(self.data.train),
            seed_batch=shared.config.seed_batch,
            compile=shared.config.compile,
        )
        if shared.config.seed_batch is None:
            chosen = _shared_out(chosen, len(self.seeds), shared.workers, num_items)
        work = self._store.load()
        published = {s for run in runs_of_key(shared.config.runs, item.key) for s in run.seeds}
        self._results = {s: kept for s, kept in work.results.items() if s not in published}
        self.engine = _as_begun(work, chosen, str(item))
        left = sorted(set(self.seeds) - set(self._results) - published)
        self._groups, rest = work.groups(left, shared.config.seed_batch)
        self._groups += groups_of(rest, min(chosen.seed_batch, self.engine.seed_batch))
        self._store.begin(self.engine.to_dict(), self._groups)

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
            claim = self._shared.claims.take(claim_of(work_name(self._item), group))
            if isinstance(claim, Holder):
                holder = claim
                continue
            if not self._store.has(group):  # finished a moment before
                self._train(group)
            claim.done()
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
        track(item, trained, shared)
        self._store.save(trained)
        self._results |= {result.seed: result for result in trained}


def _shared_out(engine: Engine, num_seeds: int, workers: int, num_items: int) -> Engine:
    """Fewer seeds together, where workers would have nothing to do."""
    most = -(-num_seeds // -(-workers // num_items))
    if workers == 1 or most >= engine.seed_batch:
        return engine
    why = f"{engine.why}; seeds shared out to {workers} workers"
    return replace(engine, seed_batch=most, why=why)


def track(item: Item, results: list[SeedResult], shared: Shared) -> None:
    """Curves of finished seeds, where they are asked for."""
    track_seeds(shared.config.track, shared.config.runs, work_name(item), results)


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
