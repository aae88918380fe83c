"""An epoch over a cache that is larger than the memory allowed, against what bounds it.

    python -m tests.benchmarks.bench_window [--rows 262144] [--seeds 16] [--attn none]

A cache of random states, written by the real writers, whose bytes are four times what
``--memory-share`` lets rows take. Before every round its pages are dropped (``posix_fadvise``), so
that what is read comes from the disk; within a round the system may keep what was read, as it
would. Contestants, in turn:

- window: an epoch of ``--shuffle window:ROWS``, with the rows that choose, from disk;
- memory: the same epoch with everything in memory, to the same bits;
- read: the training split once, from beginning to end, in large pieces;
- full: the same seeds with ``--shuffle full`` from disk, over the first steps of an epoch, scaled.

In the first steps hardly a row is read twice; in a whole epoch with a quarter of the cache in
memory up to a quarter of the reads would be served from there, by which ``full`` is overstated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.specs import build
from gaam_decoder.training import group
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, groups_of
from gaam_decoder.training.arithmetic.reuse import Steps
from gaam_decoder.training.group import Group
from gaam_decoder.training.items import Item, plan_items
from gaam_decoder.training.rows.data import TrainData, prepare_data
from gaam_decoder.training.rows.epoch import epoch_batches
from gaam_decoder.training.rows.free_memory import free_memory
from gaam_decoder.training.rows.loaded import Loaded
from tests.benchmarks._machine import alternate, describe, median_ratio
from tests.cache.published import write_cache

CPU = torch.device("cpu")
LAYERS, HIDDEN_SIZE = 6, 384
"""Of all-MiniLM-L6-v2."""
PIECE = 2**23
"""Bytes of a read of the baseline."""
FULL_STEPS = 40


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=262_144)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--attn", default="none")
    parser.add_argument("--blocks", type=int, default=16, help="of an epoch, about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        result = run(Path(folder) / "cache", options)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write the cache and time the contestants."""
    cache = written(folder, options.rows)
    size = sum(file.stat().st_size for file in folder.glob("shards/train-*.h5"))
    config = TrainConfig(
        cache=folder,
        attn=(options.attn,),
        seeds=tuple(range(options.seeds)),
        epochs=1000,
        shuffle=f"window:{options.rows // options.blocks}",
        device="cpu",
        probe=False,
    )
    share = size / 4 / free_memory()
    [window] = plan_items(config, cache, CPU)
    [full] = plan_items(replace(config, shuffle="full"), cache, CPU)
    on_disk = prepare_data(cache, window.recipe, CPU, Loaded(share))
    in_memory = prepare_data(cache, window.recipe, CPU, Loaded(0.9))
    assert on_disk.train.features.place == "disk"
    assert in_memory.train.features.place == "memory"
    engine = choose_engine(
        window.spec,
        replace(window.recipe, epochs=35),
        CPU,
        num_seeds=options.seeds,
        num_rows=len(on_disk.train),
    )
    steps = Steps()
    trainings = {
        "window": Training(window, on_disk, config.seeds, engine, steps),
        "memory": Training(window, in_memory, config.seeds, engine, steps),
    }
    share_of_epoch = FULL_STEPS * window.recipe.batch_size / len(on_disk.train)
    of_full = Training(full, replace(on_disk, selection=None), config.seeds, engine, steps)

    def epoch(name: str) -> float:
        drop(folder)
        return trainings[name].epoch()

    def of_full_epoch() -> float:
        drop(folder)
        with patch.object(group, "epoch_batches", first_batches):
            return of_full.epoch() / share_of_epoch

    def read() -> float:
        drop(folder)
        return read_once(folder)

    contestants = {
        "window": lambda: epoch("window"),
        "memory": lambda: epoch("memory"),
        "read": read,
        "full": of_full_epoch,
    }
    alternate(1, contestants)  # compiled, and every shard checked
    figures = alternate(options.rounds, contestants)
    assert trainings["window"].loss() == trainings["memory"].loss()
    bound = [max(a, b) for a, b in zip(figures["memory"], figures["read"], strict=True)]
    return {
        "machine": describe(CPU),
        "rows": options.rows,
        "bytes": size,
        "memory_allowed": size // 4,
        "attention": options.attn,
        "engine": engine.in_words(),
        "window": window.recipe.shuffle,
        "chosen_by_rows_in": on_disk.selection and on_disk.selection.features.place,
        "seconds_per_epoch": {name: statistics.median(of) for name, of in figures.items()},
        "window_against_bound": median_ratio(figures["window"], bound),
        "full_against_window": median_ratio(figures["full"], figures["window"]),
    }


class Training:
    """All seeds of an item, in the groups in which they would be trained."""

    def __init__(
        self, item: Item, data: TrainData, seeds: tuple[int, ...], engine: Engine, steps: Steps
    ) -> None:
        self.groups = [
            Group(
                item.spec,
                data,
                item.recipe,
                some,
                loss_of=build(item.recipe.loss, "loss"),
                engine=engine,
                steps=steps,
            )
            for some in groups_of(seeds, engine.seed_batch)
        ]

    def epoch(self) -> float:
        """Seconds of one epoch of all."""
        start = time.perf_counter()
        for one in self.groups:
            one.train_epoch()
        return time.perf_counter() - start

    def loss(self) -> list[float]:
        """Training loss of all seeds and epochs."""
        members = [member for one in self.groups for member in one.members]
        return [entry["loss"] for member in members for entry in member.log]


def first_batches(*arguments: Any) -> Iterator[Any]:
    """Those of an epoch that are timed, none of the others read."""
    with closing(epoch_batches(*arguments)) as batches:
        yield from islice(batches, FULL_STEPS)


def written(folder: Path, rows: int) -> EmbeddingCache:
    """Random states of two classes."""
    generator = np.random.default_rng(0)

    def states(shard: Any) -> Any:
        shape = (shard.stop - shard.start, LAYERS, HIDDEN_SIZE)
        return generator.standard_normal(shape, dtype=np.float32).astype(np.float16)

    write_cache(folder, {"train": rows, "test": 2048}, LAYERS, HIDDEN_SIZE, states)
    return open_cache(folder)


def drop(folder: Path) -> None:
    """Let the system forget the pages of all shards."""
    for file in folder.glob("shards/*.h5"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_once(folder: Path) -> float:
    """Seconds to read the files of the training split."""
    piece = memoryview(bytearray(PIECE))
    start = time.perf_counter()
    for file in sorted(folder.glob("shards/train-*.h5")):
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(piece):
                pass
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
