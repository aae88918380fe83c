"""How far a cache is: what is there, what is missing, who is at work on it."""

from __future__ import annotations

import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.holdings import Holding, holdings
from gaam_cache.engines.sharing.undone import LEASE_FOLDER
from gaam_cache.errors import NotFoundError
from gaam_cache.format.layout import missing_shards
from gaam_cache.format.plan import PLAN_FILE, Plan, ShardSpec, read_plan
from gaam_cache.format.receipt import receipt_path
from gaam_cache.import_config import maker_of
from gaam_cache.messages import duration, visible

WINDOW_SECONDS = 900.0
"""The rate is that of the last quarter of an hour in which a shard came."""
LOOKED_AT = 2000
"""Receipts whose times are asked for; of more, so many at random."""
SHOWN = 12
"""Holders that are listed for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheStatus:
    """What ``gaam status`` says of a cache."""

    path: str
    shards: int
    done: int
    rows: int
    rows_done: int
    splits: dict[str, dict[str, int]]
    """Shards that are done, and all, of every split."""
    at_work: tuple[Holding, ...]
    rows_per_second: float | None
    """Lately, of all workers together; None where nobody is at work, or too few shards are done."""
    seconds_left: float | None
    maker: str = "gaam extract"
    """The command that goes on."""

    @property
    def complete(self) -> bool:
        """Whether every shard is there."""
        return self.done == self.shards

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"kind": "cache", "complete": self.complete, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people."""
        share = 100 * self.rows_done / self.rows
        state = "complete" if self.complete else f"{share:.1f}% of the rows"
        lines = [
            f"cache {visible(self.path)}: {state}",
            f"  shards       {self.done:,} of {self.shards:,}, {self.rows_done:,} of "
            f"{self.rows:,} rows",
        ]
        if len(self.splits) > 1 and not self.complete:
            parts = [f"{visible(n)} {s['done']:,}/{s['shards']:,}" for n, s in self.splits.items()]
            lines.append(f"  splits       {', '.join(parts)}")
        if self.complete:
            return "\n".join(lines)
        if self.rows_per_second is not None and self.seconds_left is not None:
            lines.append(
                f"  speed        {self.rows_per_second:,.1f} rows/s lately, about "
                f"{duration(self.seconds_left)} left"
            )
        if not self.at_work:
            lines.append(f"  at work      nobody: the {self.maker} that began it goes on")
        lines += [f"  {visible(h.name):<12} {h.in_words()}" for h in self.at_work[:SHOWN]]
        if len(self.at_work) > SHOWN:
            lines.append(f"  and {len(self.at_work) - SHOWN:,} more")
        return "\n".join(lines)


def status(path: Path) -> CacheStatus:
    """How far a cache is; others may be writing it.

    Raises:
        NotFoundError: no cache there, or nothing of it yet.
        CacheError: its plan is damaged.
        StorageError: the folder cannot be listed.
    """
    if not os.path.lexists(path / PLAN_FILE) and (held := holdings(path / LEASE_FOLDER)):
        raise NotFoundError(
            f"nothing of the cache in '{path}' is there yet",
            expected="its plan, which is written when an encoder is loaded",
            found=f"rows being read by {held[0].in_words()}",
            where=str(path.absolute()),
            hint="look again in a minute",
        )
    plan = read_plan(path)
    missing = set(missing_shards(path, plan, files=True))
    splits = {name: {"done": 0, "shards": 0} for name in plan.rows}
    done = []
    for shard in plan.shards():
        splits[shard.split]["shards"] += 1
        if shard.name not in missing:
            splits[shard.split]["done"] += 1
            done.append(shard)
    total, rows_done = sum(plan.rows.values()), sum(shard.stop - shard.start for shard in done)
    held = holdings(path / LEASE_FOLDER)
    at_work = tuple(one for one in held if one.name in missing or one.name == "rows")
    rate = _rate(path, done) if any(not one.dead for one in at_work) else None
    return CacheStatus(
        path=str(path),
        shards=_count(plan),
        done=len(done),
        rows=total,
        rows_done=rows_done,
        splits=splits,
        at_work=at_work,
        rows_per_second=rate,
        seconds_left=(total - rows_done) / rate if rate else None,
        maker=maker_of(plan.encoder),
    )


def _count(plan: Plan) -> int:
    return sum(-(-rows // plan.shard_rows) for rows in plan.rows.values())


def _rate(root: Path, done: list[ShardSpec]) -> float | None:
    """Rows a second lately, by the times of the receipts alone: one clock, that of their server."""
    some = done if len(done) <= LOOKED_AT else random.Random(0).sample(done, LOOKED_AT)
    times = []
    for shard in some:
        try:
            times.append((receipt_path(root, shard.name).stat().st_mtime, shard))
        except OSError:
            continue  # taken away to be made again
    if not times:
        return None
    last = max(time for time, _ in times)
    lately = sorted((t, s.stop - s.start) for t, s in times if t > last - WINDOW_SECONDS)
    seconds = last - lately[0][0]
    if len(lately) < 3 or seconds <= 0:
        return None
    # the first one's rows were made before its time
    return sum(rows for _, rows in lately[1:]) / seconds * len(done) / len(some)
