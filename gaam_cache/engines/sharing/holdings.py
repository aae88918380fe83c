"""Who is at work on what, for whoever looks on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.holder import parse, read_content
from gaam_cache.engines.sharing.processes import is_alive, this_machine

_ENTRY = re.compile(r"([^.].*)\.([0-9]{1,9})")


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
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    last: dict[str, int] = {}
    for match in filter(None, map(_ENTRY.fullmatch, names)):
        last[match[1]] = max(last.get(match[1], 0), int(match[2]))
    here, found = this_machine(), []
    for name, number in sorted(last.items()):
        try:
            holder = parse(read_content(folder / f"{name}.{number}"))
        except OSError:
            continue  # finished meanwhile
        if holder.given_back or not holder.pid:
            continue
        ours = holder.machine is not None and holder.machine == here
        found.append(
            Holding(
                name=name,
                host=holder.host,
                process=holder.pid,
                since=holder.since,
                dead=ours and not is_alive(holder.pid, holder.started),
            )
        )
    return found
