"""The bytes of a file, where there are some and not too many."""

from __future__ import annotations

from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._flaws import Flaw

MOST_BYTES = 2**30
"""Of one file: it is held in memory while it is decoded."""


def whole(blob: Blob) -> bytes:
    """All of it.

    Raises:
        Flaw: it is empty, or too large.
        DataError: it cannot be read.
    """
    if blob.size == 0:
        raise Flaw("a file is empty", "a sound or a picture", "0 bytes", hint="remove its row")
    if blob.size > MOST_BYTES:
        raise Flaw(
            "a file is too large",
            f"at most {MOST_BYTES:,} bytes",
            f"{blob.size:,}",
            hint="write it in a smaller format, or in parts",
        )
    return blob.read()
