"""Processor time of ``gaam --help``, beside that of the library that prints it.

Usage: python -m tests.benchmarks.bench_help [--rounds N]

The promise is less than 0.3 s on a quiet machine of today. The ratio holds on any machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import torch

from tests.benchmarks._machine import describe

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "gaam --help": [sys.executable, "-m", "cli", "--help"],
    "its library": [sys.executable, "-c", "import typer.rich_utils"],
    "python": [sys.executable, "-c", "pass"],
}


def seconds(command: list[str]) -> float:
    """Processor time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run all in alternation and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    ratio = medians["gaam --help"] / medians["its library"]
    about = {"machine": describe(torch.device("cpu")), "median_seconds": medians, "ratio": ratio}
    print(json.dumps(about, indent=2))


if __name__ == "__main__":
    main()
