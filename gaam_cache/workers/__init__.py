"""Workers: processes of this machine, actors of a cluster, and ranks.

An engine starts workers, starts them again when they die, and passes on their messages.
It carries no rows, states or weights, and it does not divide the work: a shard exists
when its receipt does, a seed when its run does, whichever worker made it. Leases make
it rare that two workers do the same work. One file of ``engines`` is one engine.
"""

from gaam_cache.workers.engines.base import Engine, Task, Worker, load_engine
from gaam_cache.workers.leases import Holder, Leases, holdings, is_alive
from gaam_cache.workers.ranks import Rank, device_of, find_rank

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
