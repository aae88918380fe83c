"""How long, how tall and how full of pictures a report of 140 runs is.

    python -m tests.benchmarks.bench_sweep_report --base CHECKOUT --json sweep.json

The runs are made up and written as ``gaam train`` writes them: 5 mechanisms x 6 single layers x 3
rates, tuned, 5 mechanisms x 5 folds, and the same mechanisms under a convolutional head at 3 rates
and over two other numbers of epochs. Every figure is taken from this checkout and, with
``--base``, from another beside it, in turn. Pixels are those of Chromium at 1280, before anything
is opened; pictures are those that are in the page.
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
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaam_decoder.runs.folders import run_name
from gaam_decoder.runs.writing import SeedResult, write_run
from tests.benchmarks._machine import alternate, describe
from tests.decoder.reports import chromium

MECHANISMS = ("none", "gaam", "laplace", "mha:heads=4", "generalized:heads=4")
RATES = (1e-4, 3e-4, 1e-3)
LAYERS, WIDTH, HEADS = 6, 384, 3
CLASSES = ("World", "Sports", "Business", "Sci/Tech")
SEEDS, ROWS, TRAIN = 10, 400, 2000
HERE = Path(__file__).parents[2]


def make_runs(folder: Path) -> int:
    """Write the 140 runs; returns how many there are."""
    for number, (attention, layer, lr) in enumerate(product(MECHANISMS, range(1, 7), RATES)):
        _write(folder, number, attention, "linear", lr=lr, layers=str(layer))
    for number, (attention, fold) in enumerate(product(MECHANISMS, range(1, 6)), 100):
        _write(folder, number, attention, "linear", fold=f"{fold}/5", split_seed=0)
    for number, (attention, lr) in enumerate(product(MECHANISMS, RATES), 200):
        _write(folder, number, attention, "conv", lr=lr)
    for number, (attention, epochs) in enumerate(product(MECHANISMS, (10, 20)), 300):
        _write(folder, number, attention, "linear", epochs=epochs)
    return len([path for path in folder.iterdir() if path.is_dir()])


def _write(folder: Path, number: int, attention: str, head: str, **changes: Any) -> None:
    recipe: dict[str, Any] = {
        "select": "val", "epochs": 35, "lr": 1e-3, "weight_decay": 0.0, "batch_size": 32,
        "pool": "mean", "layers": None, "train_split": "train", "test_split": "test",
    } | changes  # fmt: skip
    generator = np.random.default_rng(number)
    rows = None
    if "fold" in recipe:  # every row in one fold
        order = np.random.default_rng(7).permutation(TRAIN).reshape(5, ROWS)
        rows = np.sort(order[int(recipe["fold"][0]) - 1])
    label_N = np.random.default_rng(1).integers(0, len(CLASSES), ROWS)
    better = 0.15 * MECHANISMS.index(attention) + 0.2 * int(recipe["layers"] or 6)
    hard_N = np.random.default_rng(2).normal(0, 1, ROWS)
    results = [_seed(generator, seed, better, hard_N, label_N, recipe) for seed in range(SEEDS)]
    about = {
        "key": f"{number:08x}" + "0" * 56,
        "attention": attention,
        "head": head,
        "recipe": recipe,
        "cache": {
            "fingerprint": "0" * 64, "encoder": "made-up", "dataset": "made-up", "layers": LAYERS,
            "hidden_size": WIDTH, "rows": {"train": TRAIN, "test": ROWS},
            "class_names": list(CLASSES),
        },
        "environment": {"python": "3", "torch": torch.__version__, "code": {}},
        "parameters": {"attention": 2304, "total": 11524},
        "engine": {"device": "cpu", "dtype": "float32", "seed_batch": 10, "compiled": False,
                   "why": "made up", "data": "memory"},
        "learned_start": {},
        "majority_accuracy": float(np.bincount(label_N).max() / ROWS),
    }  # fmt: skip
    name = run_name(attention, head, about["key"], range(SEEDS))
    write_run(folder, name, results, torch.from_numpy(label_N), about, rows, config="")


def _seed(generator: Any, seed: int, better: float, hard_N: Any, label_N: Any, recipe: Any) -> Any:
    logits = generator.normal(0, 1, (ROWS, len(CLASSES))).astype(np.float32)
    strength = 1.6 + better - hard_N + generator.normal(0, 0.5, ROWS)
    logits[np.arange(ROWS), label_N] += strength.astype(np.float32)
    held_out = 0.8 + better / 20 + generator.normal(0, 0.002)
    log = [
        {"seed": seed, "epoch": e, "loss": 1 / e, "train_accuracy": 0.9, "accuracy": held_out}
        for e in range(1, recipe["epochs"] + 1)
    ]
    layers = 1 if recipe["layers"] else LAYERS
    return SeedResult(
        seed=seed, weights={"w": torch.zeros(1)}, test_logits=torch.from_numpy(logits),
        attention_map=torch.rand(layers, WIDTH), epoch=5, seconds=1.0, failed=None, log=log,
        learned={"xi": torch.rand(HEADS, WIDTH), "offset": torch.rand(HEADS, WIDTH)},
    )  # fmt: skip


def _seconds(root: Path, runs: Path, name: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import cli; cli.main()", "report", str(runs),
         "--format", name, "--out", str(runs.parent / f"{root.name}.{name}")],
        check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    return time.perf_counter() - start


def _seen(root: Path, folder: Path) -> dict[str, Any]:
    """Lines, pictures and pixels of what ``_seconds`` left."""
    page = folder / f"{root.name}.html"
    found = {
        "lines": (folder / f"{root.name}.terminal").read_text().count("\n"),
        "pictures": page.read_text().count("<svg"),
        "kilobytes": page.stat().st_size // 1000,
    }
    if chromium.PATH:
        profile = folder / f"profile-{root.name}"
        with chromium.Chromium(profile) as browser:
            for width in (1280, 390):
                browser.open(page, width=width)
                found[f"pixels at {width}"] = browser.ask("document.documentElement.scrollHeight")
    return found


def main() -> None:
    """Print what was seen, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="Another checkout.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="Folder for runs and reports.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        runs = folder / "runs"
        count = len(list(runs.iterdir())) if runs.is_dir() else make_runs(runs)
        roots = {"now": HERE} | ({"base": options.base.absolute()} if options.base else {})
        contestants = {
            f"{who} {name}": partial(_seconds, root, runs, name)
            for who, root in roots.items()
            for name in ("terminal", "html")
        }
        taken = alternate(options.rounds, contestants)
        found: dict[str, Any] = {who: _seen(root, folder) for who, root in roots.items()}
    for name, seconds in taken.items():
        who, format = name.split()
        found[who][f"{format} s"] = round(statistics.median(seconds), 2)
    print(f"{count} runs")
    for who, values in found.items():
        print(f"{who:5}", ", ".join(f"{name} {value:,}" for name, value in values.items()))
    if options.json:
        content = {"machine": describe(), "runs": count, "found": found, "seconds": taken}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
