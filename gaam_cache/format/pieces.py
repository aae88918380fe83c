"""Content cut into the pieces in which it is given to the system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

WRITE_BYTES = 2**16
"""Of a piece. Of larger ones ext4 (Linux 6.18) makes large pages, for which a virtual machine may
ask its host: 0.4 to 2.5 s of processor time a GB, in these pieces 0.4."""


def pieces(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """All bytes of the parts, in order."""
    for part in parts:
        if len(part):
            view = memoryview(part).cast("B")
            for start in range(0, len(view), WRITE_BYTES):
                yield view[start : start + WRITE_BYTES]
