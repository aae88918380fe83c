"""What a benchmark ran on, and its ceilings."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gaam_cache.common import devices


def needs_gpu() -> torch.device:
    """The GPU; without one the program ends here, in words."""
    if not torch.cuda.is_available():
        built = (
            f"built for CUDA {torch.version.cuda}"
            if torch.version.cuda
            else "built without CUDA"
        )
        sys.exit(
            f"no GPU here: torch {torch.__version__} of {sys.executable} is {built} and finds "
            "none. Nothing was measured; --tiny rehearses it on the CPU"
        )
    return devices.resolve_device("cuda")


def describe(device: torch.device | None = None) -> dict[str, Any]:
    """The machine, as far as it decides the figures."""
    cuda = device is not None and device.type == "cuda"
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [
            x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")
        ]
        model = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "cpu": model or platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "memory_gb": _memory() / 1e9,
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        **(_gpu(device) if cuda and device is not None else {}),
    }


def _memory() -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gpu(device: torch.device) -> dict[str, Any]:
    """What else of a GPU decides the figures."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(
            ask, capture_output=True, text=True, check=True
        ).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = None
    about = torch.cuda.get_device_properties(device)
    return {
        "gpu_memory_gb": about.total_memory / 1e9,
        "gpu_count": torch.cuda.device_count(),
        "compute_capability": f"{about.major}.{about.minor}",
        "driver": driver,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def synchronise(device: torch.device) -> None:
    """Wait for a GPU; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_product_flops(
    device: torch.device, dtype: torch.dtype, size: int | None = None
) -> float:
    """Floating-point operations per second of the best square matrix product, random data."""
    size = size or (8192 if device.type == "cuda" else 2048)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(8):
        synchronise(device)
        start = time.perf_counter()
        a @ b
        synchronise(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


class Timed(NamedTuple):
    """What a command printed, and what it took with all its threads and children."""

    processor_seconds: float
    clock_seconds: float
    output: str


def run_timed(command: list[str], folder: Path, environment: dict[str, str]) -> Timed:
    """Run a command in a folder, and time it."""
    before, start = os.times(), time.perf_counter()
    finished = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    clock_seconds, after = time.perf_counter() - start, os.times()
    user_seconds = after.children_user - before.children_user
    system_seconds = after.children_system - before.children_system
    return Timed(user_seconds + system_seconds, clock_seconds, finished.stdout)


def alternate(
    rounds: int, contestants: dict[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Run every contestant once per round, in turn, so that drift of the machine hits all alike."""
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            figures[name].append(run())
    return figures


def median_ratio(ours: list[float], baseline: list[float]) -> float:
    """Median over rounds of ours / baseline."""
    return statistics.median(a / b for a, b in zip(ours, baseline, strict=True))
