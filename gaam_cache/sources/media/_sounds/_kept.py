"""The decoder that read a piece of a sound goes on with the next one."""

from __future__ import annotations

from threading import Lock

from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._decoder import Decoder

_LOCK = Lock()
_kept: list[tuple[str, Decoder]] = []
"""At most one, of the file of that SHA-256. It holds the file, as it was when it was checked.

Each of 120 pieces of 10 minutes of FLAC would else be decoded from the beginning: 232 s instead of
4 s."""


def take(blob: Blob, start: int) -> Decoder:
    """A decoder of a file that has not read what begins at ``start``; nobody else has it.

    Raises:
        DataError: the file cannot be read, or is no longer what it was.
        ConfigError: what decodes sounds is not installed.
    """
    with _LOCK:
        if _kept and _kept[0][0] == blob.sha256 and _kept[0][1].position <= start:
            return _kept.pop()[1]
    return Decoder(blob.read(), blob.where)


def keep(blob: Blob, decoder: Decoder) -> None:
    """Whoever wants a later piece may have it."""
    with _LOCK:
        _kept[:] = [(blob.sha256, decoder)]
