"""Files of a folder of leases."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"\.?(.+)\.([0-9]{1,9})(?:\.([0-9]{1,9})\.[0-9a-f]+\.tmp)?")
"""And the temporary files of those that were killed while they made one."""


class Entry(NamedTuple):
    """A file whose name is that of an announcement."""

    path: Path
    name: str
    """Of the work."""
    number: int
    """In the log of the name."""
    maker: int | None
    """Process that was making it; None of one that is whole."""


def entries_of(folder: Path) -> list[Entry]:
    """All announcements, and what was to become one; none where the folder cannot be used."""
    try:
        matches = [(path, _ENTRY.fullmatch(path.name)) for path in folder.iterdir()]
    except OSError:
        return []
    return [
        Entry(path, match[1], int(match[2]), int(match[3]) if match[3] else None)
        for path, match in matches
        if match is not None
    ]


def remove(path: Path) -> None:
    """Remove a file; a folder, or what is not ours to remove, harms nobody."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
