"""Reading shuffled batches from a cache against other ways to hold the same numbers.

    python -m tests.benchmarks.bench_read [--rows 16384] [--layers 40] [--hidden-size 1024]

Every contestant reads one epoch of shuffled batches of 32 of the same float16 rows from the page
cache: ours through ``EmbeddingCache``; ``np.copy`` of the same bytes, batch by batch, from an array
in memory (the bound of any copy); h5py fancy indexing; and a pickled list of float32 tensors, as
published, whose time to the first batch and peak memory are what hurts.

Before that, what training waits for: opening the cache, reading all labels and loading all states,
without checks, for the first time (every byte is hashed and every number looked at) and again (what
was checked is remembered), each in turn; the cache has 1.3 GB unless asked for otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle  # noqa: S403 the contestant that the published code uses; never in gaam itself
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from gaam_cache.cache import open_cache
from gaam_cache.store.read import RACY_NANOSECONDS, Identity, ShardReader
from tests.benchmarks._machine import alternate, describe, median_ratio
from tests.cache.published import write_random_cache

BATCH_SIZE = 32


def peak_kilobytes() -> int:
    """Peak resident memory of this process (unlike ``ru_maxrss``, not inherited over exec)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def first_batch(kind: str, path: str) -> None:
    """In a process of its own: time to the first batch and peak memory."""
    before = peak_kilobytes()
    start = time.perf_counter()
    if kind == "gaam":
        batch = torch.from_numpy(open_cache(path)["train"].embeddings[np.arange(BATCH_SIZE)])
    else:
        with Path(path).open("rb") as file:
            batch = torch.stack(pickle.load(file)[:BATCH_SIZE])  # noqa: S301 written above
    assert len(batch) == BATCH_SIZE
    seconds = time.perf_counter() - start
    peak = (peak_kilobytes() - before) / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


def load(cache: Path, kind: str, user: Path) -> float:
    """Seconds until all states of a cache are in memory: 'first', 'again', or 'unchecked'."""
    os.environ["XDG_CACHE_HOME"] = str(user)
    if kind == "first":
        shutil.rmtree(user, ignore_errors=True)
    check = ShardReader._check
    if kind == "unchecked":
        ShardReader._check = _trust  # type: ignore[method-assign]
    try:
        start = time.perf_counter()
        split = open_cache(cache)["train"]
        assert split.labels.sum() == len(split) // 2
        assert len(split.embeddings[:]) == len(split)
        return time.perf_counter() - start
    finally:
        ShardReader._check = check  # type: ignore[method-assign]


def _trust(reader: ShardReader, shard: int) -> None:
    reader._checked[shard] = Identity.of(Path(reader._path(shard)).stat())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--hidden-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-batch", nargs=2)
    arguments = parser.parse_args()
    if arguments.first_batch:
        first_batch(*arguments.first_batch)
        return
    with tempfile.TemporaryDirectory(dir=".") as folder:
        result = run(Path(folder).resolve(), arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


def run(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the contestants' files, time them, print."""
    write_random_cache(folder / "cache", arguments.rows, arguments.layers, arguments.hidden_size)
    time.sleep(RACY_NANOSECONDS / 1e9 + 0.5)  # what has just been written is not remembered
    kinds = ("unchecked", "first", "again")
    alternate(1, {"unchecked": lambda: load(folder / "cache", "unchecked", folder / "user")})
    loading = alternate(
        arguments.rounds,
        {kind: lambda kind=kind: load(folder / "cache", kind, folder / "user") for kind in kinds},
    )
    states = open_cache(folder / "cache")["train"].embeddings
    memory = states[:]
    with h5py.File(folder / "one.h5", "w") as file:
        file["embeddings"] = memory
    with (folder / "states.pickle").open("wb") as file:
        pickle.dump([torch.from_numpy(row.astype(np.float32)) for row in memory], file)
    order = np.random.default_rng(1).permutation(arguments.rows)
    batches = [order[i : i + BATCH_SIZE] for i in range(0, len(order), BATCH_SIZE)]

    def timed(read: Any) -> float:
        start = time.perf_counter()
        for number, batch in enumerate(batches):
            read(number, batch)
        return memory.nbytes / (time.perf_counter() - start)

    def copy(number: int, batch: np.ndarray) -> np.ndarray:
        return np.copy(memory[number * BATCH_SIZE : number * BATCH_SIZE + len(batch)])

    with h5py.File(folder / "one.h5") as file:
        dataset = file["embeddings"]

        def fancy(number: int, batch: np.ndarray) -> np.ndarray:
            ascending = np.argsort(batch)  # h5py takes increasing indices only
            out = np.empty((len(batch), *memory.shape[1:]), memory.dtype)
            out[ascending] = dataset[batch[ascending]]
            return out

        np.testing.assert_array_equal(states[batches[0]], fancy(0, batches[0]))
        contestants = {
            "gaam": lambda: timed(lambda number, batch: states[batch]),
            "np.copy, in order": lambda: timed(copy),
            "np.take, shuffled": lambda: timed(lambda number, batch: memory[batch]),
            "h5py fancy": lambda: timed(fancy),
        }
        alternate(1, contestants)
        figures = alternate(arguments.rounds, contestants)
    result: dict[str, Any] = {
        "machine": describe(torch.device("cpu")),
        "bytes": memory.nbytes,
        "gigabytes_per_second": {n: statistics.median(v) / 1e9 for n, v in figures.items()},
        "gaam_relative_to": {
            n: median_ratio(figures["gaam"], v) for n, v in figures.items() if n != "gaam"
        },
        "seconds_to_load": {kind: statistics.median(loading[kind]) for kind in kinds},
        "loading_relative_to_unchecked": {
            kind: median_ratio(loading[kind], loading["unchecked"]) for kind in kinds
        },
        "first_batch": {},
    }
    print(json.dumps(result["machine"]), f"{memory.nbytes / 1e6:.0f} MB of float16 states")
    for kind in kinds:
        seconds = result["seconds_to_load"][kind]
        ratio = result["loading_relative_to_unchecked"][kind]
        print(f"load, {kind:<12} {seconds:6.2f} s   x{ratio:.2f} of unchecked")
    for name, value in result["gigabytes_per_second"].items():
        ratio = result["gaam_relative_to"].get(name)
        print(f"{name:<20} {value:6.2f} GB/s" + (f"   gaam is x{ratio:.2f}" if ratio else ""))
    for kind, path in (("gaam", folder / "cache"), ("pickle", folder / "states.pickle")):
        command = [sys.executable, "-m", "tests.benchmarks.bench_read", "--first-batch", kind]
        out = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
        entry = result["first_batch"][kind] = json.loads(out.stdout)
        print(
            f"{kind:<8} first batch after {entry['seconds']:.3f} s, {entry['peak_mb']:.0f} MB more"
        )
    return result


if __name__ == "__main__":
    main()
