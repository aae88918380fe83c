"""The decoder that read a piece of a sound goes on with the next one."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._decoder import Decoder

_LOCK = Lock()
_kept: list[tuple[str, Decoder]] = []
"""At most one, of the file of that SHA-256. It holds the file, as it was when it was checked.

Each of 120 pieces of 10 minutes of FLAC would else be decoded from the beginning: 232 s instead of
4 s."""


@contextmanager
def taken(blob: Blob, start: int, *, more: bool) -> Iterator[Decoder]:
    """A decoder of a file that has not read what begins at ``start``; nobody else has it.

    Args:
        blob: the file.
        start: the first frame that is wanted.
        more: whether a later piece may be wanted too. Then the decoder is kept, unless reading
            fails; else it is closed.

    Raises:
        DataError: the file cannot be read, or is no longer what it was.
        ConfigError: what decodes sounds is not installed.
    """
    decoder = _kept_of(blob, start) or Decoder(blob.read(), blob.where)
    try:
        yield decoder
    except BaseException:
        decoder.close()
        raise
    if more:
        with _LOCK:
            decoders = [one for _, one in _kept]
            _kept[:] = [(blob.sha256, decoder)]
    else:
        decoders = [decoder]
    for one in decoders:
        one.close()


def _kept_of(blob: Blob, start: int) -> Decoder | None:
    with _LOCK:
        if _kept and _kept[0][0] == blob.sha256 and _kept[0][1].position <= start:
            return _kept.pop()[1]
    return None


@atexit.register
def close() -> None:
    """Close what is kept: nobody wants a later piece."""
    with _LOCK:
        decoders = [one for _, one in _kept]
        _kept.clear()
    for one in decoders:
        one.close()
