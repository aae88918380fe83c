"""Rows of a cache on their way to a decoder.

S seeds, B batch, N rows, L layers, D hidden size.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.cache import ShardedArray
from gaam_cache.devices import free_on
from gaam_decoder.training.rows.protocol import Rows

RESIDENT_SHARE = 0.5
"""Share of the free memory that the rows may take; a larger cache stays on disk."""
PREFETCH = 3
"""Batches that are gathered ahead where the rows are not on the device."""


class Features:
    """Rows of states: on the device if they fit, else in memory, else from the memory map.

    Attributes:
        place: 'cuda', 'mps', 'memory' or 'disk': where the rows are.
    """

    def __init__(self, array: ShardedArray, device: torch.device) -> None:
        """Load ``array`` where it fits."""
        self.device = device
        self.shape = array.shape
        self.place = "disk"
        self._resident: Tensor | None = None
        self._array: ShardedArray | NDArray[np.generic] = array
        size = int(np.prod(array.shape)) * array.dtype.itemsize
        if device.type != "cpu" and size <= RESIDENT_SHARE * free_on(device):
            self._resident = torch.from_numpy(array[:]).to(device)
            self.place = device.type
        elif size <= RESIDENT_SHARE * free_memory():
            self._array = array[:]
            self.place = "memory"
            if device.type == "cpu":
                self._resident = torch.from_numpy(self._array)

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def batches(self, rows: Rows, size: int) -> Iterator[Tensor]:
        """For every ``size`` entries along the last axis of ``rows``: those rows, as stored.

        Gathered once before anything is computed: arithmetic that fetched its operands from rows
        all over the memory would wait for it. Rows that are not on the device are gathered ahead by
        a thread.

        Shape:
            rows (N,) or (S, N); each batch (B, L, D) or (S, B, L, D).
        """
        starts = range(0, rows.shape[-1], size)
        if self._resident is not None:
            place = torch.from_numpy(rows).to(self.device)
            for start in starts:
                wanted = place[..., start : start + size]
                block = self._resident.index_select(0, wanted.flatten())
                yield block.view(*wanted.shape, *self.shape[1:])
            return
        with ThreadPoolExecutor(1) as gatherer:
            ahead: deque[Future[Tensor]] = deque()
            for start in starts:
                ahead.append(gatherer.submit(self._gather, rows[..., start : start + size]))
                if len(ahead) > PREFETCH:
                    yield ahead.popleft().result().to(self.device, non_blocking=True)
            while ahead:
                yield ahead.popleft().result().to(self.device, non_blocking=True)

    def _gather(self, wanted: Rows) -> Tensor:
        block = torch.from_numpy(self._array[wanted.reshape(-1)])
        block = block.view(*wanted.shape, *self.shape[1:])
        return block.pin_memory() if self.device.type == "cuda" else block


def free_memory() -> int:
    """Bytes of memory that this process may still take: of the machine, its cgroup, its limits."""
    return max(0, int(min(_free_of_machine(), _free_of_cgroup(), _free_of_limits())))


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
