"""What a command costs before its work begins: seconds of processor and clock.

    python -m tests.benchmarks.bench_start [--runs 5] [--encoder NAME] [--limit 300]
        [--only NAME ...] [--against CHECKOUT] [--json FILE]

The commands, on the bundled news sample: the help; an extraction whose probe is kept,
and its start, which is what its own clock of encoding leaves out; ``verify`` of the
cache; ``train --dry-run``; a report on one small run. Each is a process of its own
with one thread. The processor time says more than the clock on a machine that others
use.

With ``--against``, every command of the other checkout runs in the same round, and a
ratio is the median over rounds. Shards of different SHA-256 end the program with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gaam_cache.config import ExtractConfig
from tests.benchmarks._machine import describe, median_ratio, run_timed

HERE = Path(__file__).parents[2]
COMMANDS = ("help", "extract", "verify", "train", "report")


class Cost(NamedTuple):
    """Seconds that a command took."""

    processor: float  # user and system, of all threads and child processes
    clock: float
    start: float  # the clock without encoding; all of it for other commands


class Checkout:
    """A checkout of gaam whose commands run in a folder of their own."""

    def __init__(self, root: Path, folder: Path, extract: list[str]) -> None:
        self._root = root
        self._folder = folder
        self._extract_options = extract
        self._num_caches = 0
        self._cache = folder
        # probes are kept in a folder of this program, not in that of the person
        places = {"PYTHONPATH": str(root), "XDG_CACHE_HOME": str(folder / "kept")}
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._environment = os.environ | places | one_thread

    def prepare(self) -> None:
        """Keep a probe, compile the modules, and train a run to report."""
        self._folder.mkdir()
        self._extract()
        settings = ["--attn", "none", "--seeds", "2", "--epochs", "1", "--lr", "3e-4"]
        self._run("train", "--cache", str(self._cache), *settings, "--no-probe")

    def commands(self) -> dict[str, Callable[[], Cost]]:
        """Name -> what runs the command once."""
        return {
            "help": lambda: self._run("--help")[0],
            "extract": self._extract,
            "verify": lambda: self._run("verify", str(self._cache))[0],
            "train": self._plan_training,
            "report": lambda: self._run("report", "runs")[0],
        }

    def shard_hashes(self) -> list[str]:
        """SHA-256 of every shard of the last cache, by its receipt."""
        receipts = sorted((self._cache / "shards").glob("*.json"))
        return [json.loads(receipt.read_text())["sha256"] for receipt in receipts]

    def _run(self, *words: str) -> tuple[Cost, str]:
        """Run a command of this checkout; return its cost and its output."""
        command = [sys.executable, str(self._root / "cli.py"), *words]
        finished = run_timed(command, self._folder, self._environment)
        seconds = finished.clock_seconds
        return Cost(finished.processor_seconds, seconds, seconds), finished.output

    def _extract(self) -> Cost:
        """Make a new cache."""
        self._cache = self._folder / f"cache-{self._num_caches}"
        self._num_caches += 1
        words = [*self._extract_options, "--out", str(self._cache), "--json", "--quiet"]
        cost, output = self._run("extract", *words)
        return cost._replace(start=cost.clock - json.loads(output)["seconds"])

    def _plan_training(self) -> Cost:
        """Say what a training would cost."""
        return self._run("train", "--cache", str(self._cache), "--dry-run")[0]


def measure(
    checkouts: dict[str, Checkout], names: list[str], num_runs: int
) -> dict[str, dict[str, list[Cost]]]:
    """Run every command of every checkout once a round: name -> checkout -> costs."""
    costs: dict[str, dict[str, list[Cost]]] = {
        name: {label: [] for label in checkouts} for name in names
    }
    for _ in range(num_runs):
        for name in names:
            for label, checkout in checkouts.items():
                costs[name][label].append(checkout.commands()[name]())
    return costs


def summarise(costs: dict[str, list[Cost]]) -> dict[str, Any]:
    """Medians of a command; ratios to the other checkout where there is one."""
    result: dict[str, Any] = {}
    for label, runs in costs.items():
        medians = [statistics.median(column) for column in zip(*runs, strict=True)]
        result[label] = dict(zip(Cost._fields, medians, strict=True))
    if "other" in costs:
        result["ratio"] = {
            part: median_ratio(
                [getattr(run, part) for run in costs["here"]],
                [getattr(run, part) for run in costs["other"]],
            )
            for part in Cost._fields
        }
    return result


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--encoder", default=ExtractConfig().encoder)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    extract = ["--encoder", arguments.encoder, "--limit", str(arguments.limit)]
    roots = {"here": HERE}
    if arguments.against is not None:
        roots["other"] = arguments.against.resolve()
    with tempfile.TemporaryDirectory() as folder:
        checkouts = {
            label: Checkout(root, Path(folder) / label, extract)
            for label, root in roots.items()
        }
        for checkout in checkouts.values():
            checkout.prepare()
        costs = measure(checkouts, arguments.only, arguments.runs)
        hashes = {label: checkouts[label].shard_hashes() for label in checkouts}

    result = {name: summarise(costs[name]) for name in arguments.only}
    print(json.dumps(describe(torch.device("cpu"))))
    for name, summary in result.items():
        for label, figures in summary.items():
            unit = "" if label == "ratio" else " s"
            shown = (f"{part} {value:6.2f}{unit}" for part, value in figures.items())
            print(f"{name:<8} {label:<6} {'  '.join(shown)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))
    if len({tuple(of_checkout) for of_checkout in hashes.values()}) > 1:
        sys.exit("the shards differ: one of the checkouts computes other states")


if __name__ == "__main__":
    main()
