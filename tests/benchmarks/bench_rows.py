"""What a training on some of the rows waits for, against one on all: bytes read, and time.

    python -m tests.benchmarks.bench_rows [--rows 16384] [--layers 12] [--hidden-size 768]

Rows of ``--train-rows`` are made ready as a training has them, from a cache that was checked
before: what learns, and what is held out to choose, on a CPU. Beside each size all rows, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.store.read import ShardReader
from gaam_decoder import TrainConfig
from gaam_decoder.recipe import NO_TEST, Recipe
from gaam_decoder.training.items import recipes
from gaam_decoder.training.rows.data import prepare_data
from tests.benchmarks._machine import alternate, describe, median_ratio
from tests.cache.published import write_random_cache

SIZES = (100, 1000, 10000, None)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden-size", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        result = run(Path(folder).resolve(), arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


def made_ready(cache: EmbeddingCache, recipe: Recipe) -> float:
    """Seconds."""
    start = time.perf_counter()
    prepare_data(cache, recipe, torch.device("cpu"))
    return time.perf_counter() - start


def read_bytes(cache: EmbeddingCache, recipe: Recipe) -> int:
    """Of states."""
    total = 0
    read = ShardReader.read

    def counted(self: ShardReader, key: str, row_N: Any, out: Any, *rest: Any) -> None:
        nonlocal total
        total += out.nbytes if key.startswith("embeddings") else 0
        read(self, key, row_N, out, *rest)

    ShardReader.read = counted  # type: ignore[method-assign]
    try:
        prepare_data(cache, recipe, torch.device("cpu"))
    finally:
        ShardReader.read = read  # type: ignore[method-assign]
    return total


def run(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write a cache, make its rows ready, print."""
    write_random_cache(folder, arguments.rows, arguments.layers, arguments.hidden_size)
    cache = open_cache(folder)
    assert np.isfinite(cache["train"].embeddings[-1:]).all()
    [base] = recipes(TrainConfig(attn=("none",), pool="mean", test_split=NO_TEST), "float32")
    of_size = {
        "all" if size is None else f"{size:,}": replace(base, train_rows=size)
        for size in SIZES
        if size is None or size < arguments.rows
    }
    bytes_of = {name: read_bytes(cache, recipe) for name, recipe in of_size.items()}
    contestants = {
        name: lambda recipe=recipe: made_ready(cache, recipe) for name, recipe in of_size.items()
    }
    alternate(1, contestants)
    seconds = alternate(arguments.rounds, contestants)
    result: dict[str, Any] = {
        "machine": describe(torch.device("cpu")),
        "rows": arguments.rows,
        "bytes_read": bytes_of,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "relative_to_all": {
            name: median_ratio(values, seconds["all"]) for name, values in seconds.items()
        },
    }
    print(json.dumps(result["machine"]), f"{arguments.rows:,} rows")
    for name, count in bytes_of.items():
        share = count / bytes_of["all"]
        print(
            f"{name:>8} rows: {count / 1e6:8.1f} MB read, {100 * share:6.2f}% of all; "
            f"{result['seconds'][name]:.3f} s, x{result['relative_to_all'][name]:.3f} of all"
        )
    return result


if __name__ == "__main__":
    main()
