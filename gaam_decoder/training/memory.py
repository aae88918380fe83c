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
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.recipe import Recipe

EVAL_BATCH_SIZE = 512
EVAL_BYTES = {"cpu": 2**24, "cuda": 2**30, "mps": 2**28}
"""Of one batch in evaluation as float32; on a GPU of all seeds together, each of which makes states
of its own from it."""
KEPT_BYTES = 512 * 2**20
LARGEST_BLOCK = 32 * 2**20
"""The most that glibc takes."""


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
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        root = Path("/sys/fs/cgroup")
        own = Path("/proc/self/cgroup").read_text("utf-8").rpartition("::")[2].strip()
        folder = root / own.lstrip("/")
        folder = folder if (folder / "memory.max").exists() else root
        limit = int((folder / "memory.max").read_text("ascii"))
        used = int((folder / "memory.current").read_text("ascii"))
        stat = dict(x.split() for x in (folder / "memory.stat").read_text("ascii").splitlines())
    except (OSError, ValueError):  # no cgroup, or "max"
        return max(0, free)
    # what files occupy of it is given back under pressure and counts as free
    returned = sum(int(stat.get(name, 0)) for name in ("file", "slab_reclaimable"))
    return max(0, min(free, limit - used + returned))


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
        together = f", seeds {spell_numbers(seeds)} together" if seeds else ""
        hint = f"--batch-size {max(1, recipe.batch_size // 2)}, fewer --layers, or --device cpu"
        if len(seeds) > 1:
            hint = f"--set seed-batch={len(seeds) // 2}, which changes results by rounding alone"
        raise ShortOfMemoryError(
            f"the memory of {device} is too small",
            expected=f"memory for {recipe}{together}, rows of a batch: {recipe.batch_size}",
            found=devices.said_of_memory(error),
            hint=hint,
        ) from error
