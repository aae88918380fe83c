"""Work that several threads do, in the order in which it was given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gaam_cache.devices import cores, workers_here

A = TypeVar("A")
B = TypeVar("B")
AHEAD = 4
"""Pieces of work for every thread that are under way or done and not yet asked for."""


def in_order(function: Callable[[A], B], items: Iterable[A]) -> Iterator[tuple[A, B]]:
    """Every item and what the function makes of it.

    As many threads as there are cores for us; what decodes sounds and pictures leaves Python while
    it does. Items are taken no further ahead than needed.

    Raises:
        Exception: whatever the function or the items raised, when its turn comes.
    """
    threads = max(1, len(cores()) // workers_here())
    waiting: deque[tuple[A, Future[B]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="gaam-look")
    try:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) >= AHEAD * threads:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
