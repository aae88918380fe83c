"""What the C library does with memory that a step frees."""

from __future__ import annotations

import contextlib
import ctypes
import functools

KEPT_BYTES = 512 * 2**20
LARGEST_BLOCK = 32 * 2**20
"""The most that glibc takes."""


@functools.cache
def keep_freed_memory() -> None:
    """Tell the C library, where it is glibc, to keep what a step frees for the next step.

    Handed back to the system, it would come back page by page, all zeroed: that made steps of the
    conv head 1.5 times as long, and compiled ones of the linear head 1.3 times. At most
    ``KEPT_BYTES`` are kept, by this process and for good.
    """
    trim_threshold, mmap_threshold = -1, -3  # of malloc.h
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, LARGEST_BLOCK)
        libc.mallopt(trim_threshold, KEPT_BYTES)
