"""Training: seeds together against a plain loop, on the states of real text.

    python -m tests.benchmarks.bench_train CACHE [--rounds 3] [--accuracy] [--cpu-time] [--json F]
    python -m tests.benchmarks.bench_train CACHE --only whole --whole ROWS EPOCHS [--rounds 3]

CACHE is of ``../shared/data/ag_news`` through all-MiniLM-L6-v2 (6 layers x 384). The plain loop is
what one would write first: one seed, ``nn.Module`` (the head's ``nn.Conv2d`` in float32), a
``DataLoader`` over a list of tensors, AdamW, ``loss.item()`` at every step. It runs in a process of
its own with nothing set, and once more with what ``gaam_decoder`` sets (memory that is kept,
threads that do not spin for long), which alone makes its convolutions much faster. All train the
same decoder on the same rows; they run in alternation and the medians of the ratios are printed.

``--accuracy`` trains 10 seeds of each to the end. ``--whole``: four mechanisms, ten seeds, whole
processes from start to end, which is README's "beside what you would use instead".
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

os.environ.setdefault(
    "GOMP_SPINCOUNT", "1000"
)  # as gaam_decoder does where it comes before torch

import torch

from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine, divide_seeds
from gaam_decoder.training.data import Features, Subset, TrainData
from gaam_decoder.training.seed_batch import SeedBatch
from tests.benchmarks._machine import (
    alternate,
    describe,
    matrix_product_flops,
    median_ratio,
    synchronise,
)
from tests.benchmarks.plain_loop import MECHANISMS, SEEDS, PlainLoop, setting

clock: Callable[[], float] = time.perf_counter
"""What times the contestants; ``--cpu-time`` takes the processor time of all threads instead, which
says more than the wall clock on a machine that others use at the same moment."""


def conv_flops(spec: DecoderSpec, rows: int) -> float:
    """Floating-point operations of the two convolutions, forward and backward."""
    return 6 * 2.0 * rows * spec.hidden_size * 9 * spec.num_layers * 512


def contestant(
    spec: DecoderSpec, data: TrainData, recipe: Recipe, how: Engine, seeds: int
) -> Callable[[], float]:
    """Seconds per seed-epoch of a group that is warm."""
    loss_of = build(recipe.loss, "loss")
    group = SeedBatch(
        spec, data, recipe, list(range(seeds)), loss_function=loss_of, engine=how
    )
    group.train_epoch()
    assert group.compiler.works == how.compiled

    def run() -> float:
        synchronise(data.train.label_N.device)
        start = clock()
        group.train_epoch()
        synchronise(data.train.label_N.device)
        return (clock() - start) / seeds

    return run


class PlainProcess:
    """The plain loop in a process of its own, which trains when it is told to."""

    def __init__(self, cache: Path, head: str, steps: int, *, tuned: bool) -> None:
        what = str(cache), head, str(steps)
        command = [sys.executable, "-m", "tests.benchmarks.plain_loop", *what]
        command += ["--cpu-time"] * (clock is not time.perf_counter) + [
            "--tuned"
        ] * tuned
        environment = {
            k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT" or tuned
        }
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self) -> float:
        """Seconds per seed-epoch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


def against_plain(figures: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and how many times as fast as both plain loops."""
    ours = [name for name in figures if not name.startswith("plain")]
    return {
        "seconds_per_seed_epoch": {k: statistics.median(v) for k, v in figures.items()},
        "times_as_fast": {k: median_ratio(figures["plain"], figures[k]) for k in ours},
        "times_as_fast_as_tuned": {
            k: median_ratio(figures["plain, tuned"], figures[k]) for k in ours
        },
    }


def linear(cache: Path, rounds: int) -> dict[str, Any]:
    """16 seeds of the linear head against the plain loop."""
    spec, data, recipe = setting(cache, "gaam", "linear")
    how = choose_engine(
        spec, recipe, torch.device("cpu"), num_seeds=16, num_rows=len(data.train)
    )
    figures = alternate(
        rounds,
        {
            "plain": PlainProcess(cache, "linear", 60, tuned=False),
            "plain, tuned": PlainProcess(cache, "linear", 60, tuned=True),
            "ours": contestant(spec, data, recipe, how, 16),
        },
    )
    return {"engine": how.to_dict(), **against_plain(figures)}


def conv(cache: Path, rounds: int) -> dict[str, Any]:
    """The conv head in float32 and bfloat16 against the plain loop, and against the ceiling."""
    spec, data, recipe = setting(cache, "gaam", "conv")
    device = torch.device("cpu")
    contestants: dict[str, Callable[[], float]] = {
        "plain": PlainProcess(cache, "conv", 12, tuned=False),
        "plain, tuned": PlainProcess(cache, "conv", 12, tuned=True),
    }
    for dtype in ("float32", "bfloat16"):
        asked = replace(recipe, dtype=dtype)
        how = choose_engine(spec, asked, device, num_seeds=10, num_rows=len(data.train))
        few = replace(data, train=_first(data.train, 40 * recipe.batch_size))
        part = contestant(spec, few, asked, how, 1)
        share = len(data.train) / len(few.train)
        contestants[dtype] = partial(scaled, part, share)
    contestants["ceiling"] = lambda: 1 / ceiling_flops(device)
    figures = alternate(rounds, contestants)
    flops = conv_flops(spec, len(data.train))
    at_ceiling = [flops * seconds for seconds in figures.pop("ceiling")]
    return {
        **against_plain(figures),
        "share_of_bfloat16_ceiling": median_ratio(at_ceiling, figures["bfloat16"]),
        "ceiling_gflops": statistics.median(flops / s / 1e9 for s in at_ceiling),
    }


def scaled(seconds: Callable[[], float], share: float) -> float:
    """The seconds of all rows, from those of a part of them."""
    return seconds() * share


def ceiling_flops(device: torch.device) -> float:
    """Of bfloat16 matrix products, by the same clock as the rest."""
    if clock is time.perf_counter:
        return matrix_product_flops(device, torch.bfloat16)
    a = torch.randn(2048, 2048).to(torch.bfloat16)
    best = float("inf")
    for _ in range(8):
        start = clock()
        a @ a
        best = min(best, clock() - start)
    return 2 * 2048**3 / best


def _first(subset: Subset, count: int) -> Subset:
    return replace(subset, rows=subset.rows[:count], label_N=subset.label_N[:count])


def accuracy(cache: Path, head: str, epochs: int, seeds: int = 10) -> dict[str, Any]:
    """Test accuracy of 10 seeds after the last epoch: ours in both arithmetics, the plain loop."""
    result: dict[str, Any] = {"epochs": epochs, "seeds": seeds}
    spec, data, recipe = setting(cache, "gaam", head, epochs=epochs)
    assert data.test is not None
    label_N = data.test.label_N
    device = torch.device("cpu")
    for dtype in ("float32", "bfloat16"):
        asked = replace(recipe, dtype=dtype)
        how = choose_engine(
            spec, asked, device, num_seeds=seeds, num_rows=len(data.train)
        )
        found = []
        for group in divide_seeds(range(seeds), how.seed_batch):
            trained = SeedBatch(spec, data, asked, group, engine=how).train()
            found += [
                float((r.test_logits.argmax(1) == label_N).float().mean())
                for r in trained
            ]
        result[dtype] = _mean(found)
    found = []
    for seed in range(seeds):
        loop = PlainLoop(spec, data, recipe, seed)
        for _ in range(epochs):
            loop.epoch()
        found.append(loop.accuracy(data.test))
    result["plain loop"] = _mean(found)
    return result


def whole(
    cache: Path, head: str, rows: int, epochs: int, rounds: int
) -> dict[str, Any]:
    """Seconds of processor and clock of both, from start to end; ours as shares of the loop's."""
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "ours": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as runs:
            plain = [
                "-m",
                "tests.benchmarks.plain_loop",
                cache,
                head,
                0,
                "--whole",
                rows,
                epochs,
            ]
            ours = [
                "cli.py",
                "train",
                "--cache",
                cache,
                "--runs",
                runs,
                "--head",
                head,
                "-q",
            ]
            ours += [word for name in MECHANISMS for word in ("--attn", name)]
            ours += [
                "--seeds",
                SEEDS,
                "--epochs",
                epochs,
                "--train-rows",
                rows,
                "--lr",
                "3e-4",
            ]
            for name, words in (("plain", plain), ("ours", [*ours, "--no-probe"])):
                before, start = os.times(), time.perf_counter()
                subprocess.run(
                    [sys.executable, *map(str, words)], check=True, stdout=sys.stderr
                )
                after, seconds = os.times(), time.perf_counter() - start
                used = sum(after[2:4]) - sum(before[2:4])
                found[name].append((used, seconds))
    parts = {name: [*map(list, zip(*of, strict=True))] for name, of in found.items()}
    shares = [median_ratio(parts["ours"][i], parts["plain"][i]) for i in (0, 1)]
    return {"processor and clock, s": parts, "share of the loop": shares}


def _mean(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values)}


class RandomRows(Features):
    """Random states on a device."""

    def __init__(
        self, rows: int, layers: int, hidden_size: int, device: torch.device
    ) -> None:
        self.device = device
        self.shape = (rows, layers, hidden_size)
        self.location = cast(Any, device.type)
        self.dtype = torch.float16
        self.resident = torch.randn(self.shape, device=device, dtype=self.dtype)
        self._loaded_N = None


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--only", help="linear, conv, accuracy-linear or -conv, whole.")
    parser.add_argument("--whole", type=int, nargs=2, metavar=("ROWS", "EPOCHS"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.cpu_time:
        globals()["clock"] = time.process_time
    result: dict[str, Any] = {"machine": describe(torch.device("cpu"))}
    parts: dict[str, Callable[[], Any]] = {}
    if arguments.cache is not None:
        parts = {
            "linear": lambda: linear(arguments.cache, arguments.rounds),
            "conv": lambda: conv(arguments.cache, arguments.rounds),
        }
        if sizes := arguments.whole:
            parts["whole"] = lambda: whole(
                arguments.cache, "linear", sizes[0], sizes[1], arguments.rounds
            )
        if arguments.accuracy:
            parts["accuracy-linear"] = lambda: accuracy(arguments.cache, "linear", 10)
            parts["accuracy-conv"] = lambda: accuracy(arguments.cache, "conv", 3)
    for name, run in parts.items():
        if arguments.only in (None, name):
            result[name] = run()
            print(name, json.dumps(result[name], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
