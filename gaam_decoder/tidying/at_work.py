"""Who is at work in a folder of runs, so that nothing is taken away under a training."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gaam_cache.engines.sharing.entries import entries_of
from gaam_cache.engines.sharing.holdings import Holding, holdings

from gaam_cache.format.files import temporary_path
from gaam_decoder.unfinished.look import CLAIM_FOLDER

STALE_SECONDS = 600.0
"""Whoever is at work says so every 10 s (``lease.RENEW_SECONDS``): sixty words were missed."""


def at_work(runs: Path) -> list[Holding]:
    """Everybody who trains in a folder: alive here, or heard of lately from elsewhere."""
    leases = runs / CLAIM_FOLDER
    heard: dict[str, float] = {}
    for entry in entries_of(leases):
        with suppress(OSError):  # finished meanwhile
            changed = entry.path.stat().st_mtime
            heard[entry.name] = max(heard.get(entry.name, changed), changed)
    held = [one for one in holdings(leases) if not one.dead]
    if not held:
        return []
    now = clock_of(runs)
    return [one for one in held if now - heard.get(one.name, now) < STALE_SECONDS]


def is_at(held: Holding, work: str) -> bool:
    """Whether what somebody is at is that work, or a group of its seeds."""
    return held.name == work or held.name.startswith(f"{work}-")


def clock_of(folder: Path) -> float:
    """Seconds by the clock that dates the files of a folder, which may be another machine's."""
    try:
        temporary = temporary_path(folder, "clock")
        try:
            temporary.touch(exist_ok=False)
            return temporary.stat().st_mtime
        finally:
            temporary.unlink(missing_ok=True)
    except OSError:
        return time.time()


def trains(key: str) -> Callable[[Holding], bool]:
    """Whether what somebody is at work on is of the key of a run, or of its first digits."""
    named = re.compile(f"-{re.escape(key[:8])}(-|\\Z)")
    return lambda held: named.search(held.name) is not None
