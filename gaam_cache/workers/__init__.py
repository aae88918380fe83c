"""Who runs the pieces: workers on this machine, on a cluster, or ranks that others started.

An engine places workers, starts them again when they die, and passes on what they say. It carries
no rows, states or weights, and has no say in what is done: a shard or a seed exists when its
receipt or its run does, whoever made it. One file is one engine.
"""

from gaam_cache.workers.engines.base import (
    Engine,
    Rank,
    Task,
    Worker,
    device_of,
    find_rank,
    load_engine,
)
from gaam_cache.workers.leases import Holder, Leases, holdings, is_alive

__all__ = [
           "Engine",
           "Holder",
           "Leases",
           "Rank",
           "Task",
           "Worker",
           "device_of",
           "find_rank",
           "holdings",
           "is_alive",
           "load_engine",
]  # fmt: skip
