"""Who is at work on what, for whoever looks on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.entries import Entry, entries_of
from gaam_cache.engines.sharing.holder import parse, read_content
from gaam_cache.engines.sharing.processes import this_machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """Work that somebody has announced."""

    name: str
    """Of the shard, or of the seeds."""
    host: str
    process: int
    since: str
    """UTC by the holder's clock."""
    dead: bool
    """Whether it is a process of this machine that has ended: the next worker takes over."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """For people."""
        gone = ", which has ended: the next worker makes it again" if self.dead else ""
        return f"{self.host}, process {self.process}, since {self.since}{gone}"


def holdings(folder: Path) -> list[Holding]:
    """All that is announced in a folder of leases, by name; nothing where there is none."""
    last: dict[str, Entry] = {}
    for entry in entries_of(folder):
        if entry.maker is None and entry.number >= last.get(entry.name, entry).number:
            last[entry.name] = entry
    here, found = this_machine(), []
    for name, entry in sorted(last.items()):
        try:
            holder = parse(read_content(entry.path))
        except OSError:
            continue  # finished meanwhile
        if holder.given_back or not holder.pid:
            continue
        found.append(
            Holding(
                name=name,
                host=holder.host,
                process=holder.pid,
                since=holder.since,
                dead=holder.is_dead(here),
            )
        )
    return found
