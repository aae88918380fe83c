"""Where the time of the headline encoder's batches goes on a GPU, and what makes them faster.

    python -m tests.benchmarks.bench_gpu_variants [--json FILE] [--seconds 180] [--tiny]

Llama-2-13B's shape with random bfloat16 weights is made once, on the device; texts have the lengths
of AG News. First a trace of one batch, beside the work that it takes on paper. Then one change
after the other: each encodes the same texts as an extraction does, up to the copies on the host,
and prints tokens a second and how far states are from those of lone texts. A change that fails, is
late or needs a GPU says so, and the next one begins. The goal is 60% of 989 TFLOP/s: 22,700 tokens a
second. ``--tiny`` rehearses all of it on the CPU with a small float32 model, which says nothing
about speed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaam_cache.common import devices
from tests.benchmarks._machine import describe, needs_gpu
from tests.benchmarks.batch_arithmetic import (
    counted_operations,
    measure_ceilings,
    work_of_batch,
)
from tests.benchmarks.batch_trace import marked_norms, trace
from tests.benchmarks.bench_gpu import (
    LLAMA_2_13B,
    TINY,
    lengths_of_ag_news,
    random_model,
)
from tests.benchmarks.encoder_passes import EncoderPasses
from tests.benchmarks.encoder_variants import Variant, variants_of
from tests.benchmarks.figures import WITHOUT_LIMIT, Figures, try_within

PEAK = 989e12
"""Dense bfloat16 operations a second of an H100 or H200, as its maker says."""
GOAL = 0.6
SECONDS_OF_A_VARIANT = 45.0
NEEDS_GPU = "needs a GPU"
COUNT_TOLERANCE = 0.01
"""Share by which the operations on paper and those that torch counts may differ."""


def trace_of_batch(passes: EncoderPasses) -> dict[str, Any]:
    """A trace of the first batch as an extraction runs it, beside its work on paper.

    Raises:
        AssertionError: torch counts other operations than those on paper.
    """
    items = [passes.rows[row] for row in passes.batches()[0]]
    longest = max(map(len, items))
    work = work_of_batch(
        passes.model.config, len(items), longest, passes.dtype.itemsize
    )
    counted = counted_operations(lambda: passes.encode(items))
    traced_passes = passes.with_ranges()
    with marked_norms(traced_passes.forward.running_model):
        traced = trace(lambda: traced_passes.encode_and_copy([items]), passes.device)
    parts = {
        part: {
            "milliseconds": traced["parts"].get(part, 0.0),
            "milliseconds_on_paper": 1e3 * passes.ceilings.seconds(part, on_paper),
            "operations_on_paper": on_paper.operations,
            "operations_counted": counted.get(part),
            "bytes_on_paper": on_paper.num_bytes,
        }
        for part, on_paper in work.items()
    }
    for part in traced["parts"].keys() - work.keys():
        parts[part] = {"milliseconds": traced["parts"][part]}
    for part, operations in counted.items():
        difference = abs(operations - work[part].operations)
        assert difference <= COUNT_TOLERANCE * work[part].operations, part
    return {"rows": len(items), "longest": longest} | traced | {"parts": parts}


def measure_all(
    passes: EncoderPasses, variants: Sequence[Variant], figures: Figures, ends: float
) -> None:
    """The trace and every variant; each figure is written as soon as it is there.

    Args:
        passes: the encoder and its texts.
        variants: ways to encode them.
        figures: takes what is measured.
        ends: when all must be over, on the clock ``time.perf_counter``.
    """
    limit = SECONDS_OF_A_VARIANT
    if passes.device.type == "cpu":
        limit = WITHOUT_LIMIT

    def attempt(measure: Callable[[], object]) -> object:
        return try_within(min(limit, ends - time.perf_counter()), measure)

    figures.add("trace", attempt(partial(trace_of_batch, passes)))
    for variant in variants:
        figure: object = NEEDS_GPU
        if passes.device.type == "cuda" or not variant.needs_gpu:
            figure = attempt(variant.measure)
        figures.add(variant.name, figure, group="variants")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    device = torch.device("cpu") if options.tiny else needs_gpu()
    dtype = torch.float32 if options.tiny else torch.bfloat16
    shape = TINY if options.tiny else LLAMA_2_13B
    num_rows = options.rows or (64 if options.tiny else 768)

    figures = Figures(options.json)
    figures.add("machine", describe(device))
    figures.add("rows", num_rows)
    # the arithmetic of the whole process, as an extraction sets it
    devices.resolve_device(device.type)
    generator = np.random.default_rng(0)
    rows = [
        generator.integers(3, shape["vocab_size"], length)
        for length in lengths_of_ag_news(num_rows)
    ]
    model = random_model(shape, device, dtype)
    ceilings = measure_ceilings(device, dtype)
    figures.add("ceilings", ceilings._asdict())
    passes = EncoderPasses(model, rows, ceilings)
    goal = GOAL * PEAK / passes.operations_per_token
    figures.add("goal_tokens_per_second", goal)
    figures.add("lone_rows_tokens_per_second", passes.lone_tokens_per_second)
    figures.add("seconds_to_begin", time.perf_counter() - start)
    # a rehearsal compiles without a compiler, as it measures nothing
    variants = variants_of(passes, backend="eager" if options.tiny else "inductor")
    seconds = WITHOUT_LIMIT if options.tiny else options.seconds
    measure_all(passes, variants, figures, start + seconds)


if __name__ == "__main__":
    main()
