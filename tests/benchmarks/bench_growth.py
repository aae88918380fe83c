"""How the cost grows with rows, layers, seeds, classes, decoders and shards.

    python -m tests.benchmarks.bench_growth [--only AXIS ...] [--runs 3] [--full]
        [--json FILE]

One size grows at a time, the others stay small. The states are random numbers. Every
point is a process of its own with one thread. Its seconds are those of the processor
within the call, without imports; its memory is the peak within the call above that
before it (Linux). The exponent is the slope between two points on logarithmic scales:
1 is a straight line. ``--full`` adds the points that take minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import gaam_cache
import gaam_decoder
from tests.benchmarks._machine import describe

HIDDEN_SIZE = 384
TEST_SHARE = 5  # one test row for so many training rows


@dataclass(frozen=True)
class Sizes:
    """The sizes of a point; one of them grows, the others keep these values."""

    rows: int = 2_000
    layers: int = 6
    seeds: int = 1
    classes: int = 2
    decoders: int = 2
    shards: int = 1


class Series(NamedTuple):
    """A command whose cost is measured while one size grows."""

    axis: str
    command: str
    values: tuple[int, ...]
    full_values: tuple[int, ...] = ()
    """Further values of ``--full``."""


SERIES = (
    Series("rows", "write", (1_000, 10_000, 100_000), (1_000_000,)),
    Series("rows", "verify", (1_000, 10_000, 100_000), (1_000_000,)),
    Series("rows", "gaam", (1_000, 10_000, 100_000), (1_000_000,)),
    Series("rows", "probe", (1_000, 10_000, 50_000), (100_000,)),
    Series("layers", "gaam", (6, 12, 24, 40)),
    Series("layers", "mha", (6, 12, 24, 40)),
    Series("layers", "probe", (6, 12, 24, 40)),
    Series("seeds", "gaam", (1, 4, 16, 64)),
    Series("seeds", "mha", (1, 4, 16), (64,)),
    Series("classes", "gaam", (2, 10, 100, 1_000)),
    Series("classes", "probe", (2, 10, 100), (1_000,)),
    Series("classes", "report", (2, 10, 100)),
    Series("decoders", "report", (5, 50, 500)),
    Series("shards", "write", (10, 100, 1_000), (10_000,)),
    Series("shards", "verify", (10, 100, 1_000), (10_000,)),
    Series("shards", "gaam", (10, 100, 1_000), (10_000,)),
)
AXES = tuple(dict.fromkeys(series.axis for series in SERIES))


class Cost(NamedTuple):
    """What a call took."""

    seconds: float
    megabytes: float


def write_cache(folder: Path, sizes: Sizes) -> None:
    """Write a cache of random states."""
    generator = np.random.default_rng(0)
    splits = {}
    for split, num_rows in (("train", sizes.rows), ("test", sizes.rows // TEST_SHARE)):
        shape = (num_rows, sizes.layers, HIDDEN_SIZE)
        states = np.empty(shape, np.float16)
        # in parts: random numbers are float64 at first
        for start in range(0, num_rows, 1_000):
            part = states[start : start + 1_000]
            part[:] = generator.standard_normal(part.shape, np.float32)
        labels = np.arange(num_rows) % sizes.classes
        splits[split] = (states, labels)
    shard_rows = math.ceil(sizes.rows / sizes.shards)
    settings: dict[str, Any] = {}
    if sizes.shards > 1:
        settings["shard_rows"] = shard_rows
    gaam_cache.write(folder, splits, **settings)


def train(folder: Path, sizes: Sizes, attention: str, head: str = "linear") -> None:
    """Train seeds of one mechanism for two epochs, without tuning."""
    settings = training_settings(folder) | {
        "attn": (attention,),
        "head": head,
        "seeds": tuple(range(sizes.seeds)),
        "epochs": 2,
    }
    gaam_decoder.train(gaam_decoder.TrainConfig(**settings))


def train_decoders(folder: Path, sizes: Sizes) -> None:
    """Train decoders of two mechanisms that differ in their number of training rows."""
    num_sizes = math.ceil(sizes.decoders / 2)
    settings = training_settings(folder) | {
        "attn": ("none", "layer-mean"),
        "seeds": (0, 1),
        "epochs": 1,
        "train_rows": tuple(sizes.rows - number for number in range(num_sizes)),
    }
    gaam_decoder.train(gaam_decoder.TrainConfig(**settings))


def training_settings(folder: Path) -> dict[str, Any]:
    """Settings that all trainings share: one rate, and no linear probe beside them."""
    return {
        "cache": folder / "cache",
        "runs": folder / "runs",
        "lr": 1e-3,
        "probe": False,
        "device": "cpu",
    }


def prepare(command: str, folder: Path, sizes: Sizes) -> Callable[[], object]:
    """Make what a command needs; return the call whose cost is measured."""
    cache = folder / "cache"
    if command == "write":
        return lambda: write_cache(cache, sizes)
    write_cache(cache, sizes)
    if command == "verify":
        return lambda: gaam_cache.verify(cache)
    if command == "probe":
        return lambda: train(folder, sizes, "none", "lbfgs")
    if command == "report":
        train_decoders(folder, sizes)
        return lambda: gaam_decoder.report(folder / "runs", baseline="none").text()
    return lambda: train(folder, sizes, command)


def measure_here(command: str, sizes: Sizes) -> Cost:
    """The cost of a command in this process."""
    with tempfile.TemporaryDirectory() as folder:
        call = prepare(command, Path(folder), sizes)
        # Linux forgets the peak of this process
        Path("/proc/self/clear_refs").write_text("5")
        memory_before = process_memory("VmRSS")
        start = time.process_time()
        call()
        seconds = time.process_time() - start
        return Cost(seconds, process_memory("VmHWM") - memory_before)


def process_memory(name: str) -> float:
    """Megabytes of this process: now (``VmRSS``), or at its peak (``VmHWM``)."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) / 1024


def measure(command: str, axis: str, value: int, num_runs: int) -> Cost:
    """The median cost of a command over processes of their own."""
    words = [sys.executable, "-m", "tests.benchmarks.bench_growth"]
    words += ["--point", command, axis, str(value)]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    costs = []
    for _ in range(num_runs):
        finished = subprocess.run(
            words,
            env=os.environ | one_thread,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        costs.append(json.loads(finished.stdout.splitlines()[-1]))
    return Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))


def exponent(value: int, cost: float, last_value: int, last_cost: float) -> float:
    """The slope between two points on logarithmic scales; nan without a cost."""
    if min(cost, last_cost) <= 0:
        return math.nan
    return math.log(cost / last_cost) / math.log(value / last_value)


def measure_series(
    series: Series, values: tuple[int, ...], num_runs: int
) -> list[dict[str, Any]]:
    """Measure and print the points of a series, with exponents between neighbours."""
    points: list[dict[str, Any]] = []
    for value in values:
        cost = measure(series.command, series.axis, value, num_runs)
        line = f"{series.axis:<9} {value:>9,}  {series.command:<7}"
        line += f" {cost.seconds:8.2f} s {cost.megabytes:8.0f} MB"
        if points:
            last = points[-1]
            slope = exponent(value, cost.seconds, last["value"], last["seconds"])
            line += f"  exponent {slope:5.2f}"
        print(line, flush=True)
        names = {"axis": series.axis, "command": series.command, "value": value}
        points.append(names | cost._asdict())
    return points


def main() -> None:
    """Measure and print, one line a point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--point", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        command, axis, value = arguments.point
        sizes = replace(Sizes(), **{axis: int(value)})
        # a class needs rows, and a shard has at least one
        sizes = replace(
            sizes, rows=max(sizes.rows, 4 * sizes.classes, 2 * sizes.shards)
        )
        print(json.dumps(measure_here(command, sizes)))
        return

    print(json.dumps(describe(torch.device("cpu"))))
    result: list[dict[str, Any]] = []
    for series in SERIES:
        if series.axis not in arguments.only:
            continue
        values = series.values
        if arguments.full:
            values += series.full_values
        result += measure_series(series, values, arguments.runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
