"""The conv head on a CPU: layouts of its images, compiled or not, seeds together or one by one.

    python -m tests.benchmarks.bench_head [--rounds 5]

Random states of the demo encoder's shape (6 layers x 384) and of Llama-2-13B's (40 x 5120), under
the GAAM gate. What is printed are medians in milliseconds of one step of one seed, all contestants
in turn in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as gaam_decoder does where it comes before torch

import numpy as np
import torch

from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.heads.conv import ConvHead
from gaam_decoder.specs import Spec, build
from gaam_decoder.training.arithmetic.engine import Engine
from gaam_decoder.training.arithmetic.memory import keep_freed_memory
from gaam_decoder.training.group import Group
from gaam_decoder.training.items import recipes
from gaam_decoder.training.rows.data import Subset, TrainData
from tests.benchmarks._machine import describe
from tests.benchmarks.bench_train import RandomRows
from tests.benchmarks.plain_loop import as_published

CPU = torch.device("cpu")
SHAPES = {(6, 384): (32, 12), (40, 5120): (8, 2)}
"""(layers, hidden size): (batch, steps of one measurement)."""


def layout(channels_last: bool, shape: tuple[int, int], dtype: str) -> Callable[[], None]:
    """The head alone, forward and backward."""
    batch, steps = SHAPES[shape]
    head = ConvHead(*shape, 4)
    x_BLD, label_B = torch.randn(batch, *shape), torch.randint(4, (batch,))

    def run() -> None:
        for _ in range(steps):
            x = x_BLD.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                logits = head(x) if channels_last else as_published(head, x)
            loss = torch.nn.functional.cross_entropy(logits.float(), label_B)
            torch.autograd.grad(loss, [x, *head.parameters()])

    return run


def whole(compiled: bool, seeds: int, shape: tuple[int, int], dtype: str) -> Callable[[], None]:
    """Whole steps of a group of seeds."""
    batch, steps = SHAPES[shape]
    rows = batch * steps
    features = RandomRows(rows, *shape, CPU)
    label_N = torch.randint(4, (rows,))
    subset = Subset(features=features, rows=np.arange(rows), label_N=label_N)
    data = TrainData(train=subset, selection=None, test=subset)
    recipe = recipes(TrainConfig(head="conv", select="last", batch_size=batch), dtype)[0]  # type: ignore[arg-type]
    layers, hidden_size = shape
    spec = DecoderSpec(
        attention=Spec("gaam"),
        head=Spec("conv"),
        num_layers=layers,
        hidden_size=hidden_size,
        num_classes=4,
    )
    engine = Engine(device="cpu", dtype=dtype, seed_batch=seeds, compiled=compiled, why="")  # type: ignore[arg-type]
    loss_of = build(recipe.loss, "loss")
    group = Group(spec, data, recipe, list(range(seeds)), loss_of=loss_of, engine=engine)
    return lambda: group._pass(1)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    keep_freed_memory()
    print(json.dumps(describe(CPU)))
    for shape, (_, steps) in SHAPES.items():
        for dtype in ("float32", "bfloat16"):
            ways = {
                "head, NCHW": (1, layout(False, shape, dtype)),
                "head, channels last": (1, layout(True, shape, dtype)),
                "step": (1, whole(False, 1, shape, dtype)),
                "step, compiled": (1, whole(True, 1, shape, dtype)),
            }
            if shape == (6, 384):
                ways["step, 4 seeds stacked"] = (4, whole(False, 4, shape, dtype))
            found: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds + 1):
                for name, (seeds, run) in ways.items():
                    start = time.perf_counter()
                    run()
                    found[name].append((time.perf_counter() - start) * 1e3 / steps / seeds)
            medians = {name: round(statistics.median(t[1:]), 1) for name, t in found.items()}
            print(shape, dtype, json.dumps(medians), flush=True)


if __name__ == "__main__":
    main()
