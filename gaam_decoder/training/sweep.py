"""Mechanisms x seeds -> runs; what exists is not trained again."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gaam_cache import devices
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import GaamWarning
from gaam_cache.format.files import storage_errors
from gaam_decoder import stats
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import build_decoder
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.runs.run_folders import runs_of_key
from gaam_decoder.runs.run_writer import remove_unfinished, run_name, temporary_runs, write_run
from gaam_decoder.runs.track import check_tracker, track_seeds
from gaam_decoder.training.claim import Claim
from gaam_decoder.training.data import Loaded, TrainData, prepare_data
from gaam_decoder.training.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.items import Item, lacking_seeds, plan_items, recipe_of
from gaam_decoder.training.programs import Programs
from gaam_decoder.training.seed_store import SeedStore, Work, work_groups
from gaam_decoder.training.train import train_group

if TYPE_CHECKING:
    Progress = Callable[[int, int, str], None]


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] = lambda run: None,
) -> list[RunResult]:
    """Train every mechanism of a config over its seeds.

    Runs that exist with the same mechanism, recipe and cache are kept, and only seeds that they
    lack are trained. A seed that was finished before an interruption is not trained again.

    Args:
        config: mechanisms, seeds, recipe, protocol, folders.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).
        on_run: called with every run when it is finished.

    Returns:
        The runs that together hold the seeds asked for, in the order of the mechanisms.

    Raises:
        ConfigError: an argument does not fit the cache.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
        StorageError: the file system refused; finished seeds are kept.
    """
    report = progress or (lambda done, total, text: None)
    check_tracker(config.track)
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    found = {item.key: runs_of_key(config.runs, item.key) for item in items}
    todo = {item.key: lacking_seeds(config, found[item.key]) for item in items}
    tracker = _Tracker(report, {key: len(seeds) * config.epochs for key, seeds in todo.items()})
    loaded: Loaded = {}
    programs = Programs()
    waiting = [item for item in items if todo[item.key] or _left_behind(item)]
    patient = False
    while waiting:
        postponed = []
        for item in waiting:
            with Claim(config.runs, _work_name(item)) as claim:
                if patient:
                    claim.wait(partial(tracker.tell, item.key, f"{item}: trained elsewhere"))
                elif not claim.take():
                    postponed.append(item)
                    continue
                # another process may have finished some since they were listed
                if claim.sole:
                    remove_unfinished(config.runs, item.key)
                there = runs_of_key(config.runs, item.key)
                published = {seed for run in there for seed in run.seeds}
                seeds = lacking_seeds(config, there)
                if not seeds:
                    _store(item).remove_if_in(published)
                else:
                    tracker.tell(item.key, f"{item}: reading and checking the cache")
                    data = prepare_data(cache, item.config, device, loaded)
                    on_run(
                        read_run(_train_run(item, seeds, published, data, cache, tracker, programs))
                    )
            found[item.key] = runs_of_key(config.runs, item.key)
            tracker.finish(item.key)
        waiting, patient = postponed, True
    return [run for item in items for run in found[item.key] if set(run.seeds) & set(config.seeds)]


def _work_name(item: Item) -> str:
    """One for all calls that share the key: other seeds may be asked for after a stop."""
    return f"{item.spec.attention.name}-{item.key[:8]}"


def _store(item: Item) -> SeedStore:
    return SeedStore(item.config.runs, _work_name(item), item.key)


def _left_behind(item: Item) -> bool:
    """Whether a kill after a run was published left something to tidy up."""
    work = item.config.runs.glob(f".{_work_name(item)}.*")
    return any(work) or any(temporary_runs(item.config.runs, item.key))


class _Tracker:
    """Seed-epochs done over all items, for the progress display."""

    def __init__(self, report: Progress, planned: dict[str, int]) -> None:
        self._report = report
        self._planned = planned
        self._done = dict.fromkeys(planned, 0)

    def tell(self, key: str, text: str, done: int | None = None) -> None:
        """Say what is going on with an item, and how many seed-epochs of it are done."""
        if done is not None:
            self._done[key] = min(done, self._planned[key])
        self._report(sum(self._done.values()), sum(self._planned.values()), text)

    def finish(self, key: str) -> None:
        """All of it is done, here or elsewhere."""
        self._done[key] = self._planned[key]


def _train_run(
    item: Item,
    seeds: list[int],
    published: set[int],
    data: TrainData,
    cache: EmbeddingCache,
    tracker: _Tracker,
    programs: Programs,
) -> Path:
    spec, config, key = item.spec, item.config, item.key
    store = _store(item)
    work = store.load()
    results = {seed: kept for seed, kept in work.results.items() if seed not in published}
    device = data.train.label_N.device
    engine = _as_begun(
        work,
        choose_engine(spec, config, device, num_seeds=len(seeds), num_rows=len(data.train)),
        str(item),
    )
    groups, rest = work_groups(sorted(set(seeds) - set(results)), work)
    groups += groups_of(rest, engine.seed_batch)
    store.begin(engine, work.planned + [group for group in groups if group not in work.planned])
    for group in groups:
        done = len(results) * config.epochs

        def on_epoch(epoch: int, loss: float, group: list[int] = group, done: int = done) -> None:
            text = f"{item} seed{'s' * (len(group) > 1)} {spell_numbers(group)}"
            text += f" epoch {epoch}/{config.epochs} loss {loss:.3f}"
            tracker.tell(key, text, done + epoch * len(group))

        checkpoint = store.checkpoint(group)
        trained, compiled = train_group(
            spec,
            data,
            config,
            group,
            engine=engine,
            checkpoint=checkpoint,
            on_epoch=on_epoch,
            programs=programs,
        )
        if engine.compiled and not compiled:
            engine = replace(engine, compiled=False, why="the compiler failed")
        if config.track == "tensorboard":
            folder = config.runs / "tensorboard" / _work_name(item)
            with storage_errors(folder, option="--runs"):
                track_seeds(folder, trained)
        store.save(trained)
        results |= {result.seed: result for result in trained}
    ordered = [results[seed] for seed in sorted(results)]
    name = run_name(str(spec.attention), str(spec.head), key, sorted(results))
    decoder = build_decoder(spec, seed=0)
    learned_N = cache[config.train_split].labels
    if config.folds is not None:
        learned_N = np.delete(learned_N, data.test.rows)
    about = {
        "key": key,
        "attention": str(spec.attention),
        "head": str(spec.head),
        "recipe": recipe_of(config),
        "cache": _about_cache(cache),
        "environment": _environment(device),
        "engine": engine.to_dict() | {"data": data.train.features.place},
        "parameters": decoder.num_parameters(),
        "learned_start": {
            name: [value.min().item(), value.max().item()]
            for name, value in decoder.attention.learned().items()
        },
        "majority_accuracy": stats.majority_accuracy(learned_N, data.test.label_N.cpu().numpy()),
    }
    path = write_run(config.runs, name, ordered, data.test.label_N, about)
    store.remove()
    return path


def _as_begun(work: Work, chosen: Engine, name: str) -> Engine:
    """The engine that the work was begun with, where it can go on so: that gives the same bits."""
    for engine in work.engines:
        if (engine.device, engine.dtype) == (chosen.device, chosen.dtype):
            return engine
    if work.engines:
        warnings.warn(
            f"{name}: begun on {work.engines[0].device}, goes on on {chosen.device}; the bits may "
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
