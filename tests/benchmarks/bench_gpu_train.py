"""Training on a GPU: Llama-2-13B's shape (40 x 5120), the GAAM gate under the published conv head.

    python -m tests.benchmarks.bench_gpu_train [--rounds 5] [--json FILE] [--tiny]

Random states on the device. The conv head as ``gaam train --dtype bfloat16`` runs it, the same
without a compiler, in float32, and a plain ``nn.Conv2d`` loop with a ``DataLoader`` (in float32 as
well: without TensorFloat-32); the linear head with 1, 10 and 64 seeds together. Prints steps a
second, the share of the measured bfloat16 ceiling of matrix products, and what 10 seeds x 35 epochs
x 120,000 rows would take. ``--tiny`` runs small shapes on whatever device there is: it shows that
the script works and says nothing about speed. README's figures of training on a GPU are from it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_train import RandomRows, conv_flops  # sets GOMP_SPINCOUNT

import numpy as np  # isort: skip
import torch  # isort: skip

from gaam_cache.common import devices
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import Spec, build
from gaam_decoder.training.arithmetic.engine import Engine, choose_engine
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.experiments import recipes
from gaam_decoder.training.seed_batch import SeedBatch
from tests.benchmarks._machine import (
    describe,
    matrix_product_flops,
    needs_gpu,
    synchronise,
)
from tests.benchmarks.figures import Figures
from tests.benchmarks.plain_loop import plain
from tests.decoder.configs import loose_config

SEEDS, EPOCHS, ROWS = 10, 35, 120_000
"""Of the published experiment on AG News: ten seeds, and the rows that it learns from."""
VALIDATION = 12_000
"""Rows that choose the epoch with ``--select val``, evaluated after each."""
BATCH_SIZE = 32
FASTEST = "conv, bfloat16"
OURS = {
    FASTEST: ("conv", "bfloat16", 1, "auto"),
    "conv, bfloat16, not compiled": ("conv", "bfloat16", 1, "off"),
    "conv, float32": ("conv", "float32", 1, "auto"),
    "linear, bfloat16, 1 seed": ("linear", "bfloat16", 1, "auto"),
    "linear, bfloat16, 10 seeds": ("linear", "bfloat16", 10, "auto"),
    "linear, bfloat16, 64 seeds": ("linear", "bfloat16", 64, "auto"),
}
"""Head, arithmetic, seeds together, --compile."""
SHAPES = {False: (1600, 40, 5120), True: (96, 4, 64)}
"""Rows, layers, hidden size; --tiny or not."""


def spec_of(head: str, layers: int, hidden_size: int) -> DecoderSpec:
    """The GAAM gate under a head."""
    return DecoderSpec(
        attention=Spec("gaam"),
        head=Spec(head),
        num_layers=layers,
        hidden_size=hidden_size,
        num_classes=4,
    )


def recipe_of(head: str, dtype: str) -> Recipe:
    """As the command line makes it."""
    config = loose_config(
        lr=3e-4,
        attn=("gaam",),
        head=head,
        pool=("mean",),
        select="last",
        batch_size=BATCH_SIZE,
    )
    return recipes(config, dtype)[0]  # type: ignore[arg-type]


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """What it takes, to the end of the last kernel."""
    synchronise(device)
    start = time.perf_counter()
    run()
    synchronise(device)
    return time.perf_counter() - start


def timed(run: Callable[[], object], rounds: int, device: torch.device) -> float:
    """Seconds; the median after a first time, which warms up and compiles."""
    run()
    return statistics.median(seconds_of(run, device) for _ in range(rounds))


def measure(device: torch.device, rounds: int, figures: Figures, *, tiny: bool) -> None:
    """All figures, one contestant after the other: who compiles forgets what others did."""
    rows, layers, hidden_size = SHAPES[tiny]
    label_N = torch.randint(4, (rows,), device=device)
    features = RandomRows(rows, layers, hidden_size, device)
    subset = Subset(features=features, rows=np.arange(rows), label_N=label_N)
    data = TrainData(train=subset, selection=None, test=subset)
    ceiling = matrix_product_flops(device, torch.bfloat16)
    figures.add("machine", describe(device))
    figures.add("rows", rows)
    figures.add("layers", layers)
    figures.add("hidden_size", hidden_size)
    figures.add("ceiling_tflops", ceiling / 1e12)
    ceiling_float32 = matrix_product_flops(device, torch.float32)
    figures.add("ceiling_tflops_float32", ceiling_float32 / 1e12)
    conv = spec_of("conv", layers, hidden_size)
    plain_seconds = plain(conv, data, recipe_of("conv", "float32"), 3 if tiny else 8)
    loop = statistics.median(plain_seconds() for _ in range(rounds))

    def note(name: str, seconds: float, head: str, engine: Engine | None) -> None:
        """Of an epoch of one seed."""
        found: dict[str, Any] = {"how": engine and engine.to_dict()}
        found["seconds_per_seed_step"] = seconds / -(-rows // BATCH_SIZE)
        found["steps_per_second"] = 1 / found["seconds_per_seed_step"]
        if head == "conv":
            found["share_of_ceiling"] = conv_flops(conv, rows) / seconds / ceiling
            found["times_the_plain_loop"] = loop / seconds
        figures.add(name, found)

    note("conv, plain loop, float32", loop, "conv", None)
    epoch = rate = 0.0
    for name, (head, dtype, seeds, compiled) in OURS.items():
        spec, recipe = spec_of(head, layers, hidden_size), recipe_of(head, dtype)
        how: Any = "off" if tiny and name != FASTEST else compiled
        engine = choose_engine(
            spec, recipe, device, num_seeds=seeds, num_rows=ROWS, compile=how
        )
        engine = replace(engine, seed_batch=seeds)
        loss_of = build(recipe.loss, "loss")
        group = SeedBatch(
            spec, data, recipe, list(range(seeds)), loss_function=loss_of, engine=engine
        )
        seconds = timed(partial(group._train_on_all_rows, 1), rounds, device) / seeds
        assert group.compiler.works == engine.compiled
        note(name, seconds, head, engine)
        if name == FASTEST:
            assert data.test is not None
            evaluate = partial(group.logits, data.test, group.state.weights)
            rate = rows / timed(evaluate, rounds, device)
            epoch = seconds * ROWS / rows + VALIDATION / rate
        del group
    figures.add("evaluated_rows_per_second", rate)
    hours = SEEDS * EPOCHS * epoch / 3600
    figures.add("projected_hours_of_10_seeds_35_epochs_120000_rows", hours)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        figures.add("peak_memory_gb", peak / 1e9)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.tiny:
        needs_gpu()
    device = devices.resolve_device("auto")
    measure(device, arguments.rounds, Figures(arguments.json), tiny=arguments.tiny)


if __name__ == "__main__":
    main()
