"""Mechanisms x seeds -> runs; what exists is not trained again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gaam_cache import registry
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import stats
from gaam_decoder.claim import Claim
from gaam_decoder.config import (
    TrainConfig,
    parse_attention,
    parse_head,
    parse_loss,
    spell_numbers,
)
from gaam_decoder.data import TrainData, prepare_data
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.engine import Engine, choose_engine, groups_of, resolve_dtype
from gaam_decoder.learned import start_values
from gaam_decoder.run_writer import run_name, write_run
from gaam_decoder.runs import RUN_FILE, RunResult, read_run
from gaam_decoder.seed_store import SeedStore
from gaam_decoder.train import train_group

if TYPE_CHECKING:
    Progress = Callable[[int, int, str], None]

NOT_RECIPE = ("attn", "head", "cache", "runs", "seeds", "device", "seed_batch", "compile")
"""Settings that are recorded elsewhere or do not change the numbers."""


def train(config: TrainConfig, *, progress: Progress | None = None) -> list[RunResult]:
    """Train every mechanism of a config over its seeds.

    Runs that exist with the same mechanism, recipe and cache are kept, and only seeds that they
    lack are trained. A seed that was finished before an interruption is not trained again.

    Args:
        config: mechanisms, seeds, recipe, protocol, folders.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).

    Returns:
        The runs that together hold the seeds asked for, in the order of the mechanisms.

    Raises:
        ConfigError: an argument does not fit the cache.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
        StorageError: the file system refused; finished seeds are kept.
    """
    report = progress or (lambda done, total, text: None)
    device = registry.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    found = {item.key: existing_runs(config.runs, item.key) for item in items}
    todo = {item.key: _lacking(config, found[item.key]) for item in items}
    tracker = _Tracker(report, {key: len(seeds) * config.epochs for key, seeds in todo.items()})
    data: TrainData | None = None
    waiting = [item for item in items if todo[item.key]]
    patient = False
    while waiting:
        postponed = []
        for item in waiting:
            with Claim(config.runs, f"{item.spec.attention.name}-{item.key[:8]}") as claim:
                if patient:
                    claim.wait(partial(tracker.tell, item.key, f"{item}: trained elsewhere"))
                elif not claim.take():
                    postponed.append(item)
                    continue
                # another process may have finished some since they were listed
                seeds = _lacking(config, existing_runs(config.runs, item.key))
                if seeds:
                    data = data or prepare_data(cache, item.config, device)
                    _train_run(item, seeds, data, cache, tracker)
            found[item.key] = existing_runs(config.runs, item.key)
            tracker.finish(item.key)
        waiting, patient = postponed, True
    return [run for item in items for run in found[item.key] if set(run.seeds) & set(config.seeds)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One decoder under one recipe: a row of the table to be."""

    spec: DecoderSpec
    config: TrainConfig
    key: str

    def __str__(self) -> str:
        """Decoder and what of the recipe a sweep varies."""
        return f"{self.spec.attention} + {self.spec.head}, lr {self.config.lrs[0]:g}"


def plan_items(config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> list[Item]:
    """Everything that a config asks for, in order.

    Raises:
        ConfigError: an option does not fit the cache.
    """
    config = _check_layers(config, cache.num_layers)
    config = replace(config, dtype=resolve_dtype(config.dtype, device))
    items = []
    for single in config.recipes():
        spec = _decoder_spec(single.attn[0], single, cache)
        with torch.device("meta"):
            build_decoder(spec, seed=0)  # an option that does not fit fails before any training
        items.append(Item(spec=spec, config=single, key=_key(spec, single, cache)))
    return items


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


def _lacking(config: TrainConfig, runs: list[RunResult]) -> list[int]:
    return sorted(set(config.seeds) - {seed for run in runs for seed in run.seeds})


def existing_runs(runs: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache, by their key."""
    found = [read_run(file.parent) for file in sorted(runs.glob(f"[!.]*-{key[:8]}-s*/{RUN_FILE}"))]
    return [run for run in found if run.key == key]


def _train_run(
    item: Item,
    seeds: list[int],
    data: TrainData,
    cache: EmbeddingCache,
    tracker: _Tracker,
) -> Path:
    spec, config, key = item.spec, item.config, item.key
    # one store for all calls that share the key: other seeds may be asked for after a stop
    store = SeedStore(config.runs, f"{spec.attention.name}-{key[:8]}")
    published = {seed for run in existing_runs(config.runs, key) for seed in run.seeds}
    results = {seed: kept for seed, kept in store.load().items() if seed not in published}
    device = data.train.label_N.device
    chosen = choose_engine(spec, config, device, num_seeds=len(seeds), num_rows=len(data.train))
    engine = Engine(**store.first_engine(chosen.to_dict()))
    groups = _groups(sorted(set(seeds) - set(results)), store.groups_at_work(), engine.seed_batch)
    for group in groups:
        done = len(results) * config.epochs

        def on_epoch(epoch: int, loss: float, group: list[int] = group, done: int = done) -> None:
            text = f"{item} seed{'s' * (len(group) > 1)} {spell_numbers(group)}"
            text += f" epoch {epoch}/{config.epochs} loss {loss:.3f}"
            tracker.tell(key, text, done + epoch * len(group))

        checkpoint = store.checkpoint(group)
        trained, compiled = train_group(
            spec, data, config, group, engine=engine, checkpoint=checkpoint, on_epoch=on_epoch
        )
        if engine.compiled and not compiled:
            engine = replace(engine, compiled=False, why="the compiler failed")
        store.save(trained)
        results |= {result.seed: result for result in trained}
    ordered = [results[seed] for seed in sorted(results)]
    name = run_name(str(spec.attention), str(spec.head), key, sorted(results))
    train_labels = cache[config.train_split].labels
    decoder = build_decoder(spec, seed=0)
    about = {
        "key": key,
        "attention": str(spec.attention),
        "head": str(spec.head),
        "recipe": _recipe(config),
        "cache": _about_cache(cache),
        "environment": _environment(device),
        "engine": engine.to_dict() | {"data": data.train.features.place},
        "parameters": decoder.num_parameters(),
        "learned_start": start_values(
            {name: value.detach().numpy() for name, value in decoder.attention.learned().items()}
        ),
        "majority_accuracy": stats.majority_accuracy(train_labels, cache[config.test_split].labels),
    }
    path = write_run(config.runs, name, ordered, data.test.label_N, about)
    store.remove()
    return path


def _groups(seeds: list[int], at_work: list[list[int]], most: int) -> list[list[int]]:
    """Seeds in groups: first those that were interrupted, as they were."""
    interrupted = []
    left = set(seeds)
    for group in at_work:
        if left & set(group):
            interrupted.append(group)
            left -= set(group)
    return interrupted + groups_of(sorted(left), most)


def _check_layers(config: TrainConfig, num_layers: int) -> TrainConfig:
    """The config, in which naming all layers is the same as naming none.

    Raises:
        ConfigError: the encoder has no such layer.
    """
    if config.layers is None:
        return config
    beyond = [layer for layer in config.layers if layer > num_layers]
    if beyond:
        raise ConfigError(
            "the encoder of the cache has no such layer",
            expected=f"--layers from 1 to {num_layers}",
            found=spell_numbers(beyond),
            where=str(config.cache.absolute()),
        )
    return replace(config, layers=None) if len(config.layers) == num_layers else config


def _decoder_spec(text: str, config: TrainConfig, cache: EmbeddingCache) -> DecoderSpec:
    return DecoderSpec(
        attention=parse_attention(text),
        head=parse_head(config.heads[0]),
        num_layers=len(config.layers or range(cache.num_layers)),
        hidden_size=cache.hidden_size,
        num_classes=len(cache.class_names),
    )


def _recipe(config: TrainConfig) -> dict[str, Any]:
    recipe = {key: value for key, value in asdict(config).items() if key not in NOT_RECIPE}
    recipe["lr"] = config.lrs[0]
    layers = spell_numbers(config.layers) if config.layers else None
    return recipe | {"loss": str(parse_loss(config.loss)), "layers": layers}


def _key(spec: DecoderSpec, config: TrainConfig, cache: EmbeddingCache) -> str:
    fields = [str(spec.attention), str(spec.head), _recipe(config), cache.fingerprint]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _about_cache(cache: EmbeddingCache) -> dict[str, Any]:
    return {
        "fingerprint": cache.fingerprint,
        "path": str(cache.root.absolute()),
        "encoder": cache.plan.encoder_label,
        "dataset": cache.plan.dataset["name"],
        "layers": cache.num_layers,
        "hidden_size": cache.hidden_size,
        "rows": cache.plan.rows,
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
