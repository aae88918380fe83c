"""One item of a sweep: its seeds from initialisation to a run folder."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import GaamWarning
from gaam_cache.format.refusals import storage_errors
from gaam_decoder import stats
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import build_decoder
from gaam_decoder.heads._fitted import Fit
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.run_writer import run_name, write_run
from gaam_decoder.runs.seed_result import SeedResult
from gaam_decoder.runs.track import track_seeds
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.fit_item import fit_item, fitted_engine
from gaam_decoder.training.items import Item
from gaam_decoder.training.reading import warn_of_order
from gaam_decoder.training.rows.data import TrainData, prepare_data
from gaam_decoder.training.rows.loaded import Loaded
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
    return SeedStore(runs, work_name(item), item.key)


def train_item(item: Item, seeds: list[int], published: set[int], shared: Shared) -> Path:
    """Train seeds of an item, or take up what was finished of them, and publish a run.

    Args:
        item: decoder and recipe.
        seeds: those that no run has.
        published: those that a run has.
        shared: the rest of the sweep.

    Returns:
        The folder of the run.
    """
    config, recipe, tracker = shared.config, item.recipe, shared.tracker
    tracker.tell(item.key, f"{item}: reading and checking the cache")
    data = prepare_data(shared.cache, recipe, shared.device, shared.loaded)
    if recipe.fitted:  # too short for checkpoints; what is published appears by one rename
        return _fit(item, data, shared)
    warn_of_order(data, recipe, str(item), shared.loaded.told)
    store = seed_store(config.runs, item)
    work = store.load()
    results = {seed: kept for seed, kept in work.results.items() if seed not in published}
    chosen = choose_engine(
        item.spec,
        recipe,
        shared.device,
        num_seeds=len(seeds),
        num_rows=len(data.train),
        seed_batch=config.seed_batch,
        compile=config.compile,
    )
    engine = _as_begun(work, chosen, str(item))
    groups, rest = work_groups(sorted(set(seeds) - set(results)), work)
    groups += groups_of(rest, engine.seed_batch)
    store.begin(
        engine.to_dict(), work.planned + [group for group in groups if group not in work.planned]
    )
    for group in groups:
        trained, compiled = train_group(
            item.spec,
            data,
            recipe,
            group,
            engine=engine,
            checkpoint=store.checkpoint(group),
            on_epoch=_teller(tracker, item, group, len(results)),
            steps=shared.steps,
        )
        if engine.compiled and not compiled:
            engine = replace(engine, compiled=False, why="the compiler failed")
        _track(item, trained, shared)
        store.save(trained)
        results |= {result.seed: result for result in trained}
    path = _publish(item, [results[seed] for seed in sorted(results)], data, engine, shared)
    store.remove()
    return path


def _fit(item: Item, data: TrainData, shared: Shared) -> Path:
    """Fit a head at once and publish its run."""

    def tell(done: int, text: str) -> None:
        shared.tracker.tell(item.key, f"{item}: {text}", done)

    result, fit = fit_item(item.spec, data, item.recipe, tell=tell)
    _track(item, [result], shared)
    return _publish(item, [result], data, fitted_engine(shared.device), shared, fit)


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
    epochs = item.recipe.epochs

    def on_epoch(epoch: int, loss: float) -> None:
        text = f"{item} seed{'s' * (len(group) > 1)} {spell_numbers(group)}"
        text += f" epoch {epoch}/{epochs} loss {loss:.3f}"
        tracker.tell(item.key, text, seeds_done * epochs + epoch * len(group))

    return on_epoch


def _publish(
    item: Item,
    results: list[SeedResult],
    data: TrainData,
    engine: Engine,
    shared: Shared,
    fit: Fit | None = None,
) -> Path:
    recipe, cache = item.recipe, shared.cache
    decoder = build_decoder(item.spec, seed=0)
    learned_N = cache[recipe.train_split].labels
    if recipe.fold is not None:
        learned_N = np.delete(learned_N, data.test.rows)
    about = {
        "key": item.key,
        "attention": str(recipe.attention),
        "head": str(recipe.head),
        "recipe": recipe.to_dict(),
        "cache": _about_cache(cache),
        "environment": _environment(shared.device) | {"code": recipe.code()},
        "engine": engine.to_dict() | {"data": data.train.features.place},
        "parameters": decoder.num_parameters(),
        "learned_start": {
            name: [value.min().item(), value.max().item()]
            for name, value in decoder.attention.learned().items()
        },
        "majority_accuracy": stats.majority_accuracy(learned_N, data.test.label_N.cpu().numpy()),
    }
    if fit is not None:
        about["fit"] = fit.to_dict()
    elif shared.config.tune_seeds is not None:
        about["tuning"] = {"seeds": list(shared.config.tune_seeds)}
    seeds = [result.seed for result in results]
    name = run_name(str(recipe.attention), str(recipe.head), item.key, seeds)
    rows = data.test.rows if recipe.fold is not None else None
    return write_run(shared.config.runs, name, results, data.test.label_N, about, rows)


def _as_begun(work: Work, chosen: Engine, name: str) -> Engine:
    """The engine that the work was begun with, where it can go on so: that gives the same bits."""
    fields = chosen.to_dict().keys()  # of another version of gaam there may be others
    begun = [Engine(**engine) for engine in work.engines if engine.keys() == fields]
    for engine in begun:
        if (engine.device, engine.dtype) == (chosen.device, chosen.dtype):
            return engine
    if begun:
        warnings.warn(
            f"{name}: begun on {begun[0].device}, goes on on {chosen.device}; the bits may "
            "differ from those of a training that was not stopped",
            GaamWarning,
            stacklevel=2,
        )
    return chosen


def _about_cache(cache: EmbeddingCache) -> dict[str, Any]:
    return {
        "fingerprint": cache.fingerprint,
        "path": str(cache.root.absolute()),
        "encoder": cache.plan.encoder_label,
        "dataset": cache.plan.dataset["name"],
        "layers": cache.num_layers,
        "hidden_size": cache.hidden_size,
        "rows": cache.plan.rows,
        "shared_texts": cache.plan.shared_texts,
        "class_names": list(cache.class_names),
        **{
            name: value
            for name, value in cache.plan.fingerprint_fields["encoder"].items()
            if name == "fitted_on"
        },
    }


def _environment(device: torch.device) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
