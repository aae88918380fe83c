"""A default training, whole processes, against the same command of another checkout.

    python -m tests.benchmarks.bench_default CACHE --against CHECKOUT
        [--attn NAME ...] [--epochs 25] [--rounds 1] [--threads 1]

The command is ``gaam train --attn gaam --attn mha --attn none``: four rates with three
tuning seeds, ten reporting seeds and the linear probe. Both checkouts run it in turn, in
new folders of runs, so that nothing is trained before. The compiler's own cache is
emptied for each, as on a machine that runs the command for the first time. What counts
is the processor time of all threads, and the mean accuracy of each decoder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks._machine import describe, median_ratio, run_timed

HERE = Path(__file__).parents[2]


class Training(NamedTuple):
    """What a command took and reached."""

    processor_seconds: float
    clock_seconds: float
    accuracies: dict[str, float]


def train(
    checkout: Path, cache: Path, attentions: list[str], epochs: int, threads: int
) -> Training:
    """Run the command of a checkout in a new folder, and read its report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {
            "PYTHONPATH": str(checkout),
            "OMP_NUM_THREADS": str(threads),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
        }
        program = [sys.executable, str(checkout / "cli.py")]
        words = ["train", "--cache", str(cache), "--epochs", str(epochs), "--quiet"]
        words += [word for name in attentions for word in ("--attn", name)]
        trained = run_timed([*program, *words], folder, environment)
        report = run_timed([*program, "report", "runs", "--json"], folder, environment)
    table = json.loads(report.output)
    accuracies = {
        f"{entry['attention']} + {entry['head']}": entry["accuracy"]["mean"]
        for entry in table["entries"]
    }
    return Training(trained.processor_seconds, trained.clock_seconds, accuracies)


def main() -> None:
    """Train in both checkouts, and print seconds, their ratio and accuracies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--attn", action="append")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    attentions = options.attn or ["gaam", "mha", "none"]

    print(json.dumps(describe()), flush=True)
    checkouts = {"here": HERE, "other": options.against.absolute()}
    trainings: dict[str, list[Training]] = {label: [] for label in checkouts}
    for _ in range(options.rounds):
        for label, checkout in checkouts.items():
            training = train(
                checkout,
                options.cache.absolute(),
                attentions,
                options.epochs,
                options.threads,
            )
            trainings[label].append(training)
            print(label, training, flush=True)
    for part in ("processor_seconds", "clock_seconds"):
        ratio = median_ratio(
            [getattr(training, part) for training in trainings["here"]],
            [getattr(training, part) for training in trainings["other"]],
        )
        print(f"{part}: {ratio:.2f} of the other checkout's")


if __name__ == "__main__":
    main()
