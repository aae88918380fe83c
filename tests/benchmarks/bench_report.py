"""How long a report takes over 200 runs of 10 seeds and 7,600 test rows, with and without pictures.

    python -m tests.benchmarks.bench_report --json report.json

The runs are made up, and written as ``gaam train`` writes them: logits of a plausible accuracy,
attention maps and learned parameters of the size of the demo encoder (6 layers x 384), logs. Every
format runs in a fresh process, start of Python included; the files are in the page cache. One
round takes a turn through all formats.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gaam_decoder.runs.folders import run_name
from gaam_decoder.runs.writing import SeedResult, write_run
from tests.benchmarks._machine import alternate, describe

FORMATS = ("terminal", "markdown", "latex", "csv", "json", "html")
LAYERS, WIDTH, HEADS = 6, 384, 3
CLASSES = ("World", "Sports", "Business", "Sci/Tech")


def make_runs(folder: Path, *, num_runs: int, num_seeds: int, num_rows: int) -> None:
    """Write runs whose mechanisms are ``gaam`` at different learning rates, and ``none``."""
    generator = np.random.default_rng(0)
    label_N = generator.integers(0, len(CLASSES), num_rows)
    hard_N = generator.normal(0, 1, num_rows)
    for number in range(num_runs):
        attention = "none" if number % 2 else "gaam"
        results = []
        for seed in range(num_seeds):
            strength = 2.2 + 0.01 * number - hard_N + generator.normal(0, 0.5, num_rows)
            logits = generator.normal(0, 1, (num_rows, len(CLASSES))).astype(np.float32)
            logits[np.arange(num_rows), label_N] += strength.astype(np.float32)
            log = [
                {"seed": seed, "epoch": e, "loss": 1 / e, "train_accuracy": 0.9, "accuracy": 0.9}
                for e in range(1, 36)
            ]
            gate = attention == "gaam"
            shape = (HEADS, WIDTH)
            results.append(
                SeedResult(
                    seed=seed,
                    weights={"w": torch.zeros(1)},
                    test_logits=torch.from_numpy(logits),
                    attention_map=torch.rand(LAYERS, WIDTH) if gate else None,
                    learned={"xi": torch.rand(shape), "offset": torch.rand(shape)} if gate else {},
                    epoch=35,
                    seconds=1.0,
                    failed=None,
                    log=log,
                )
            )
        key = f"{number:08x}" + "0" * 56
        about = {
            "key": key,
            "attention": attention,
            "head": "linear",
            "recipe": {
                "select": "val",
                "epochs": 35,
                "lr": 1e-4,
                "batch_size": 1
                + number // 2,  # a row of its own: another rate would be a candidate
                "pool": "mean",
                "layers": None,
                "train_split": "train",
                "test_split": "test",
            },
            "cache": {
                "fingerprint": "0" * 64,
                "encoder": "made-up",
                "dataset": "made-up",
                "layers": LAYERS,
                "hidden_size": WIDTH,
                "rows": {"train": 120_000, "test": num_rows},
                "class_names": list(CLASSES),
            },
            "environment": {"python": "3", "torch": torch.__version__, "code": {}},
            "parameters": {"attention": 2304, "total": 11524},
            "engine": {
                "device": "cpu",
                "dtype": "float32",
                "seed_batch": 10,
                "compiled": False,
                "why": "made up",
                "data": "memory",
            },
            "learned_start": {},
            "majority_accuracy": 0.25,
        }
        name = run_name(attention, "linear", key, range(num_seeds))
        write_run(folder, name, results, torch.from_numpy(label_N), about, config="")


def _seconds(name: str, runs: Path, program: str, processor: list[float]) -> float:
    """Seconds by the clock; those of the processor, which other work disturbs less, go aside."""
    command = [sys.executable, "-c", program, "report", str(runs), "--format", name]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, "--out", str(runs.parent / "report")], check=True)
    taken, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return taken


def main() -> None:
    """Print seconds per format and write them, with the machine, if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=7600)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        size = {"num_runs": options.runs, "num_seeds": options.seeds, "num_rows": options.rows}
        make_runs(runs, **size)
        program = "import cli; cli.main()"
        processor: dict[str, list[float]] = {name: [] for name in FORMATS}
        contestants = {
            name: partial(_seconds, name, runs, program, processor[name]) for name in FORMATS
        }
        taken = alternate(options.rounds, contestants)
    median = {name: statistics.median(values) for name, values in taken.items()}
    for name, seconds in median.items():
        limit = 30 if name == "html" else 5
        busy = statistics.median(processor[name])
        every = ", ".join(f"{value:.2f}" for value in taken[name])
        print(f"{name:10} {seconds:6.2f} s (limit {limit} s), processor {busy:.2f} s; all: {every}")
    content = {
        "machine": describe(torch.device("cpu")),
        "size": size,
        "seconds": taken,
        "median": median,
    }
    if options.json:
        options.json.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
