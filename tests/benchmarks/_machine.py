"""What a benchmark ran on, and its ceilings."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def describe(device: torch.device) -> dict[str, Any]:
    """The machine, as far as it decides the figures."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "cpu": model or platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def synchronise(device: torch.device) -> None:
    """Wait for a GPU; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_product_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of the best square matrix product, random data."""
    size = 8192 if device.type == "cuda" else 2048
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(8):
        synchronise(device)
        start = time.perf_counter()
        a @ b
        synchronise(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def alternate(rounds: int, contestants: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run every contestant once per round, in turn, so that drift of the machine hits all alike."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            figures[name].append(run())
    return figures


def median_ratio(ours: list[float], baseline: list[float]) -> float:
    """Median over rounds of ours / baseline."""
    return statistics.median(a / b for a, b in zip(ours, baseline, strict=True))
