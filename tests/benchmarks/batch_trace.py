"""Where the time of one batch goes: torch's profiler, its events grouped into parts.

On a GPU the time is that of kernels, and a gap is a time without any. On a CPU it is
that of operators, and gaps are what Python takes between them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from tests.benchmarks._machine import synchronise

PART_OF_RANGE = {
    "aten::scaled_dot_product_attention": "attention",
    "aten::linear": "products",
    "norms": "norms",
    "pooling": "pooling",
    "copies": "copies",
}
"""Operator, or range that this benchmark marks -> part of a batch. The innermost one
around a kernel decides; what is in none is 'other'."""
RANGES = ("batch", "norms", "pooling", "copies")
LISTED_KERNELS = 15


@contextmanager
def marked_norms(model: nn.Module) -> Iterator[None]:
    """While open, a profiler sees the norms of a model as ranges."""
    norms = [module for module in model.modules() if "Norm" in type(module).__name__]
    for norm in norms:
        norm.forward = _marked(norm.forward, "norms")
    try:
        yield
    finally:
        for norm in norms:
            # the class's own method shows again
            del norm.forward


def _marked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function whose calls are ranges of this name."""

    def call(*args: Any, **options: Any) -> Any:
        with record_function(name):
            return function(*args, **options)

    return call


def trace(run: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """Milliseconds of every part of a batch, of its gaps, and of its longest kernels.

    Args:
        run: runs the batch.
        device: where it runs.
    """
    # the first run sets up libraries and memory
    run()
    synchronise(device)
    start = time.perf_counter()
    run()
    synchronise(device)
    seconds_without_profiler = time.perf_counter() - start

    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler, record_function("batch"):
        run()
        synchronise(device)
    events: Any = profiler.events()
    summary = trace_of_kernels if device.type == "cuda" else _trace_of_operators
    parts, longest, milliseconds = summary(events)
    names = sorted(longest, key=longest.__getitem__, reverse=True)
    return {
        "milliseconds_without_profiler": 1e3 * seconds_without_profiler,
        "milliseconds": milliseconds,
        "parts": dict(parts),
        "longest": {name: longest[name] for name in names[:LISTED_KERNELS]},
    }


Summary = tuple[dict[str, float], dict[str, float], float]
"""Milliseconds of every part, and by name of a kernel or operator; those of the batch."""


def trace_of_kernels(events: Sequence[Any]) -> Summary:
    """Group the kernels of a GPU by the operator that launched them."""
    parts: dict[str, float] = defaultdict(float)
    longest: dict[str, float] = defaultdict(float)
    for event in events:
        # a range has a kernel of its own, which spans those of its operators
        if event.name in RANGES:
            continue
        for kernel in event.kernels:
            is_copy = kernel.name.startswith(("Memcpy", "Memset"))
            part = "copies" if is_copy else _part_of(event)
            parts[part] += kernel.duration / 1e3
            longest[kernel.name[:120]] += kernel.duration / 1e3

    intervals = [
        (event.time_range.start / 1e3, event.time_range.end / 1e3)
        for event in events
        if event.device_type == torch.autograd.DeviceType.CUDA
        and event.name not in RANGES
    ]
    first = min(start for start, _ in intervals)
    last = max(end for _, end in intervals)
    busy = _covered(intervals)
    # not zero where the profiler links a kernel to no operator, or where streams overlap
    parts["unattributed"] = busy - sum(parts.values())
    parts["gaps"] = last - first - busy
    return parts, longest, last - first


def _trace_of_operators(events: Sequence[Any]) -> Summary:
    """Group the operators of a CPU."""
    parts: dict[str, float] = defaultdict(float)
    longest: dict[str, float] = defaultdict(float)
    milliseconds = 0.0
    for event in events:
        own_milliseconds = event.self_cpu_time_total / 1e3
        if event.name == "batch":
            milliseconds = event.cpu_time_total / 1e3
            parts["gaps"] += own_milliseconds
            continue
        parts[_part_of(event)] += own_milliseconds
        longest[event.name] += own_milliseconds
    return parts, longest, milliseconds


def _part_of(event: Any) -> str:
    """The part of a batch to which an operator belongs."""
    while event is not None:
        if event.name in PART_OF_RANGE:
            return PART_OF_RANGE[event.name]
        event = event.cpu_parent
    return "other"


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Length of the union of intervals: streams may run at the same time."""
    covered = 0.0
    last_end = float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, last_end))
        last_end = max(last_end, end)
    return covered
