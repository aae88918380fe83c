"""How much memory this process may still take."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch

from gaam_cache import devices


def free_memory() -> int:
    """Bytes of memory that this process may still take: of the machine, its cgroup, its limits."""
    return max(0, int(min(_free_of_machine(), _free_of_cgroup(), _free_of_limits())))


def free_on(device: torch.device) -> int:
    """Bytes that are free on a GPU, or of the machine's memory for each of its workers."""
    if device.type != "cpu":
        return devices.free_on(device)
    return free_memory() // devices.workers_here()


def _free_of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_of_cgroup(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Of version 2; what files occupy of it is given back under pressure and counts as free."""
    try:
        own = Path("/proc/self/cgroup").read_text("utf-8").rpartition("::")[2].strip()
        folder = root / own.lstrip("/")
        folder = folder if (folder / "memory.max").exists() else root
        limit = int((folder / "memory.max").read_text("ascii"))
        used = int((folder / "memory.current").read_text("ascii"))
        stat = (folder / "memory.stat").read_text("ascii").splitlines()
        cached = sum(
            int(x.split()[1]) for x in stat if x.split()[0] in ("file", "slab_reclaimable")
        )
        return limit - used + cached
    except (OSError, ValueError):  # no cgroup, or "max"
        return float("inf")


def _free_of_limits() -> float:
    free = float("inf")
    try:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        for limit, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                free = min(free, most - int(status[field].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        pass
    return free
