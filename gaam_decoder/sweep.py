"""Mechanisms x seeds -> runs; what exists is not trained again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gaam_cache import registry
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import stats
from gaam_decoder.config import (
    TrainConfig,
    parse_attention,
    parse_head,
    parse_loss,
    spell_numbers,
)
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.learned import start_values
from gaam_decoder.run_writer import run_name, write_run
from gaam_decoder.runs import RUN_FILE, RunResult, read_run
from gaam_decoder.seed_store import SeedStore
from gaam_decoder.train import SeedResult, TrainData, prepare_data, train_seed

if TYPE_CHECKING:
    Progress = Callable[[int, int, str], None]

NOT_RECIPE = ("attn", "head", "cache", "runs", "seeds", "device")
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
    config = _check_layers(config, cache.num_layers)
    specs = [_decoder_spec(text, config, cache) for text in config.attn]
    for spec in specs:
        with torch.device("meta"):
            build_decoder(spec, seed=0)  # an option that does not fit fails before any training
    keys = [_key(spec, config, cache) for spec in specs]
    there = [existing_runs(config.runs, key) for key in keys]
    todo = [
        sorted(set(config.seeds) - {seed for run in runs for seed in run.seeds}) for runs in there
    ]
    total = sum(map(len, todo)) * config.epochs
    done = 0
    data: TrainData | None = None
    results: list[RunResult] = []
    for spec, key, runs, seeds in zip(specs, keys, there, todo, strict=True):
        results += [run for run in runs if set(run.seeds) & set(config.seeds)]
        if not seeds:
            continue
        data = data or prepare_data(cache, config, device)
        base = done

        def tick(count: int, text: str, base: int = base) -> None:
            report(base + count, total, text)

        path = _train_run(spec, key, seeds, data, cache, config, tick)
        done += len(seeds) * config.epochs
        results.append(read_run(path))
    return results


def existing_runs(runs: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache, by their key."""
    found = [read_run(file.parent) for file in sorted(runs.glob(f"[!.]*-{key[:8]}-s*/{RUN_FILE}"))]
    return [run for run in found if run.key == key]


def _train_run(
    spec: DecoderSpec,
    key: str,
    seeds: list[int],
    data: TrainData,
    cache: EmbeddingCache,
    config: TrainConfig,
    tick: Callable[[int, str], None],
) -> Path:
    name = run_name(str(spec.attention), str(spec.head), key, seeds)
    # one store for all calls that share the key: other seeds may be asked for after a stop
    store = SeedStore(config.runs, f"{spec.attention.name}-{key[:8]}")
    results: list[SeedResult] = []
    for index, seed in enumerate(seeds):

        def on_epoch(epoch: int, loss: float, seed: int = seed, index: int = index) -> None:
            text = f"{spec.attention} seed {seed} ({index + 1}/{len(seeds)})"
            text += f" epoch {epoch}/{config.epochs} loss {loss:.3f}"
            tick(index * config.epochs + epoch, text)

        result = store.load(seed)
        if result is None:
            result = train_seed(spec, data, config, seed, on_epoch=on_epoch)
            store.save(result)
        results.append(result)
    train_labels = cache[config.train_split].labels
    decoder = build_decoder(spec, seed=0)
    about = {
        "key": key,
        "attention": str(spec.attention),
        "head": str(spec.head),
        "recipe": _recipe(config),
        "cache": _about_cache(cache),
        "environment": _environment(data.test.label_N.device),
        "parameters": decoder.num_parameters(),
        "learned_start": start_values(
            {name: value.detach().numpy() for name, value in decoder.attention.learned().items()}
        ),
        "majority_accuracy": stats.majority_accuracy(train_labels, cache[config.test_split].labels),
    }
    path = write_run(config.runs, name, results, data.test.label_N, about)
    store.remove()
    return path


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
        head=parse_head(config.head),
        num_layers=len(config.layers or range(cache.num_layers)),
        hidden_size=cache.hidden_size,
        num_classes=len(cache.class_names),
    )


def _recipe(config: TrainConfig) -> dict[str, Any]:
    recipe = {key: value for key, value in asdict(config).items() if key not in NOT_RECIPE}
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
