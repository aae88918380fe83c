"""Training on a GPU: Llama-2-13B's shape (40 x 5120), gates and mha under the conv and linear heads.

    python -m tests.benchmarks.bench_gpu_train [--rounds 5] [--json FILE] [--tiny]

Random states on the device. The conv head as ``gaam train --dtype bfloat16`` runs it, the same
without a compiler, in float32, and a plain ``nn.Conv2d`` loop with a ``DataLoader`` (in float32 as
well: without TensorFloat-32); the linear head with 1, 10 and 64 seeds together, beside its plain
loop. Prints steps a second, the share of the measured bfloat16 ceiling of matrix products, and what
10 seeds x 35 epochs x 120,000 rows would take. A contestant that fails or is late says so, and the
next one begins. ``--tiny`` runs small shapes on whatever device there is: it shows that the script
works and says nothing about speed. README's figures of training on a GPU are from it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.bench_train import RandomRows, conv_flops  # sets GOMP_SPINCOUNT

import numpy as np  # isort: skip
import torch  # isort: skip

from gaam_cache.common import devices
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.recipe import Recipe
from gaam_decoder.specs import Spec, build
from gaam_decoder.training.arithmetic.engine import choose_engine
from gaam_decoder.training.data import Subset, TrainData
from gaam_decoder.training.experiments import recipes
from gaam_decoder.training.seed_batch import SeedBatch
from tests.benchmarks._machine import (
    describe,
    matrix_product_flops,
    needs_gpu,
    synchronise,
)
from tests.benchmarks.figures import WITHOUT_LIMIT, Figures, try_within
from tests.benchmarks.plain_loop import plain
from tests.decoder.configs import loose_config

SEEDS, EPOCHS, ROWS = 10, 35, 120_000
"""Of the published experiment on AG News: ten seeds, and the rows that it learns from."""
VALIDATION = 12_000
"""Rows that choose the epoch with ``--select val``, evaluated after each."""
BATCH_SIZE = 32
FASTEST = "conv, bfloat16"
SECONDS_OF_A_CONTESTANT = 40.0


class Contestant(NamedTuple):
    """A training to time."""

    attention: str
    head: str
    dtype: str
    seeds: int  # trained together; the conv head takes one at a time
    compile: str = "auto"


CONTESTANTS = {
    FASTEST: Contestant("gaam", "conv", "bfloat16", 1),
    "conv, bfloat16, not compiled": Contestant("gaam", "conv", "bfloat16", 1, "off"),
    "conv, float32": Contestant("gaam", "conv", "float32", 1),
    "linear, bfloat16, 1 seed": Contestant("gaam", "linear", "bfloat16", 1),
    "linear, bfloat16, 10 seeds": Contestant("gaam", "linear", "bfloat16", 10),
    "mha, linear, bfloat16, 10 seeds": Contestant("mha", "linear", "bfloat16", 10),
    "mha, conv, bfloat16": Contestant("mha", "conv", "bfloat16", 1),
    "linear, bfloat16, 64 seeds": Contestant("gaam", "linear", "bfloat16", 64),
}
SHAPES = {False: (1600, 40, 5120), True: (96, 4, 64)}
"""Rows, layers, hidden size; --tiny or not."""


def spec_of(
    attention: str, head: str, num_layers: int, hidden_size: int
) -> DecoderSpec:
    """A mechanism under a head."""
    return DecoderSpec(
        attention=Spec(attention),
        head=Spec(head),
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_classes=4,
    )


def recipe_of(attention: str, head: str, dtype: str) -> Recipe:
    """As the command line makes it."""
    config = loose_config(
        lr=3e-4,
        attn=(attention,),
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


class TrainingBench:
    """Times contestants, one after the other: who compiles forgets what others did."""

    def __init__(
        self, device: torch.device, rounds: int, figures: Figures, *, tiny: bool
    ) -> None:
        self._device = device
        self._rounds = rounds
        self._figures = figures
        self._tiny = tiny
        num_rows, self._layers, self._hidden_size = SHAPES[tiny]
        label_N = torch.randint(4, (num_rows,), device=device)
        features = RandomRows(num_rows, self._layers, self._hidden_size, device)
        subset = Subset(features=features, rows=np.arange(num_rows), label_N=label_N)
        self._data = TrainData(train=subset, selection=None, test=subset)
        self._rows = num_rows
        # a rehearsal measures nothing, and need not take long for it
        self._product_size = 256 if tiny else None
        self._ceiling = self._measure_ceiling(torch.bfloat16)
        self._plain_seconds: dict[tuple[str, str], float] = {}
        """Mechanism and head -> seconds of an epoch of the plain loop."""

    def _measure_ceiling(self, dtype: torch.dtype) -> float:
        """Operations a second of large matrix products."""
        return matrix_product_flops(self._device, dtype, self._product_size)

    def measure_all(self) -> None:
        """Every figure is written as soon as it is there."""
        figures = self._figures
        figures.add("machine", describe(self._device))
        figures.add("rows", self._rows)
        figures.add("layers", self._layers)
        figures.add("hidden_size", self._hidden_size)
        figures.add("ceiling_tflops", self._ceiling / 1e12)
        ceiling_float32 = self._measure_ceiling(torch.float32)
        figures.add("ceiling_tflops_float32", ceiling_float32 / 1e12)
        limit = WITHOUT_LIMIT if self._tiny else SECONDS_OF_A_CONTESTANT
        for name, contestant in CONTESTANTS.items():
            self._measure_plain_loop(contestant.attention, contestant.head)
            measure = partial(self._measure, name, contestant)
            figures.add(name, try_within(limit, measure))
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device)
            figures.add("peak_memory_gb", peak / 1e9)

    def _measure_plain_loop(self, attention: str, head: str) -> None:
        """Time the plain loop of a mechanism and head, once."""
        if (attention, head) in self._plain_seconds:
            return
        spec = spec_of(attention, head, self._layers, self._hidden_size)
        recipe = recipe_of(attention, head, "float32")
        run = plain(spec, self._data, recipe, 3 if self._tiny else 8)
        seconds = statistics.median(run() for _ in range(self._rounds))
        self._plain_seconds[attention, head] = seconds
        name = f"{head}, plain loop, float32"
        if attention != "gaam":
            name = f"{attention}, {name}"
        figure = self._figure_of(Contestant(attention, head, "float32", 1), seconds)
        self._figures.add(name, figure)

    def _figure_of(self, contestant: Contestant, seconds: float) -> dict[str, Any]:
        """Rates of an epoch of one seed."""
        plain_seconds = self._plain_seconds[contestant.attention, contestant.head]
        steps = -(-self._rows // BATCH_SIZE)
        figure: dict[str, Any] = {
            "seconds_per_seed_step": seconds / steps,
            "steps_per_second": steps / seconds,
            "times_the_plain_loop": plain_seconds / seconds,
        }
        if contestant.head == "conv":
            spec = spec_of("gaam", "conv", self._layers, self._hidden_size)
            operations = conv_flops(spec, self._rows)
            figure["share_of_ceiling"] = operations / seconds / self._ceiling
        return figure

    def _measure(self, name: str, contestant: Contestant) -> dict[str, Any]:
        """Time an epoch of a contestant."""
        attention, head, dtype, seeds, compiled = contestant
        spec = spec_of(attention, head, self._layers, self._hidden_size)
        recipe = recipe_of(attention, head, dtype)
        how: Any = "off" if self._tiny and name != FASTEST else compiled
        engine = choose_engine(
            spec, recipe, self._device, num_seeds=seeds, num_rows=ROWS, compile=how
        )
        engine = replace(engine, seed_batch=seeds)
        loss_of = build(recipe.loss, "loss")
        group = SeedBatch(
            spec,
            self._data,
            recipe,
            list(range(seeds)),
            loss_function=loss_of,
            engine=engine,
        )
        train = partial(group._train_on_all_rows, 1)
        seconds = timed(train, self._rounds, self._device) / seeds
        assert group.compiler.works == engine.compiled
        if name == FASTEST:
            self._project(group, seconds)
        return self._figure_of(contestant, seconds) | {"how": engine.to_dict()}

    def _project(self, group: SeedBatch, seconds: float) -> None:
        """What the published experiment would take, of which an epoch took so long here."""
        assert self._data.test is not None
        evaluate = partial(group.logits, self._data.test, group.state.weights)
        rate = self._rows / timed(evaluate, self._rounds, self._device)
        self._figures.add("evaluated_rows_per_second", rate)
        epoch = seconds * ROWS / self._rows + VALIDATION / rate
        hours = SEEDS * EPOCHS * epoch / 3600
        self._figures.add("projected_hours_of_10_seeds_35_epochs_120000_rows", hours)


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
    figures = Figures(arguments.json)
    bench = TrainingBench(device, arguments.rounds, figures, tiny=arguments.tiny)
    bench.measure_all()
    if missing := [x for x in CONTESTANTS if isinstance(figures.content[x], str)]:
        sys.exit(f"without a figure: {', '.join(missing)}")


if __name__ == "__main__":
    main()
