"""Memory: what is free, what a step keeps, rows at once, and what is said where it is short."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from gaam_cache import devices
from gaam_cache.errors import ShortOfMemoryError
from gaam_decoder.recipe import Recipe

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together."""
KEPT_BYTES, LARGEST_BLOCK = 512 * 2**20, 32 * 2**20
"""Of freed memory: in all, and of one piece, of which glibc takes no larger ones."""


def rows_at_once(device_type: str, numbers: int) -> int:
    """Rows of a batch in evaluation, at least one, of which each takes so many float32 numbers."""
    return max(1, EVAL_BYTES[device_type] // (4 * numbers))


def free_on(device: torch.device) -> int:
    """Bytes that are free on a GPU, or of the machine's memory for each of its workers."""
    if device.type != "cpu":
        return devices.free_on(device)
    return free_memory() // devices.workers_here()


def free_memory() -> int:
    """Bytes of memory that this process may still take: of the machine and of its cgroup (v2)."""
    try:
        free = (
            int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
        )
    except (OSError, IndexError, ValueError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        root = Path("/sys/fs/cgroup")
        own = root / Path("/proc/self/cgroup").read_text().rpartition("::/")[2].strip()
        folder = own if (own / "memory.max").exists() else root
        left = int((folder / "memory.max").read_text())
        left -= int((folder / "memory.current").read_text())
        stat = dict(x.split() for x in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no cgroup, or "max"
        return max(0, free)
    # what files occupy of it is given back under pressure and counts as free
    return max(0, min(free, left + int(stat["file"]) + int(stat.get("slab_reclaimable", 0))))


@functools.cache
def keep_freed_memory() -> None:
    """Tell the C library, where it is glibc, to keep what a step frees for the next step.

    Handed back to the system, it would come back page by page, all zeroed: that made steps of the
    conv head 1.5 times as long, and compiled ones of the linear head 1.3 times.
    """
    trim_threshold, mmap_threshold = -1, -3  # of malloc.h
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, LARGEST_BLOCK)
        libc.mallopt(trim_threshold, KEPT_BYTES)


@contextlib.contextmanager
def enough_memory(recipe: Recipe, seeds: Sequence[int], device: str) -> Iterator[None]:
    """While open, a ShortOfMemoryError says what to try; without seeds a head is fitted at once."""
    try:
        yield
    except Exception as error:
        if not devices.out_of_memory(error) or isinstance(error, ShortOfMemoryError):
            raise
        hint = f"--batch-size {max(1, recipe.batch_size // 2)}, fewer --layers, or --device cpu"
        if len(seeds) > 1:
            hint = f"--set seed-batch={len(seeds) // 2}, which changes results by rounding alone"
        raise ShortOfMemoryError(
            f"the memory of {device} is too small for {recipe}, {len(seeds) or 1} seeds together",
            found=devices.said_of_memory(error),
            hint=hint,
        ) from error
