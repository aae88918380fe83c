"""What stands between the bytes of a file and its decoder."""

from __future__ import annotations

import io
from functools import cache
from typing import Any


class Source(io.BytesIO):
    """A file that may claim to be longer than it is.

    It ends for whoever reads on and on; who looks near the end that it claims finds zeros.
    """

    def __init__(self, content: bytes, claimed: int | None) -> None:
        super().__init__(content)
        self._real = len(content)
        self._size = claimed or len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go there, as if it were as long as it claims."""
        if whence == io.SEEK_END:
            return super().seek(max(0, self._size + offset))
        return super().seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        if self.tell() <= self._real:
            return super().readinto(buffer)
        size = max(0, min(len(buffer), self._size - self.tell()))
        buffer[:size] = bytes(size)
        super().seek(size, io.SEEK_CUR)
        return size


@cache
def forwards(library: Any) -> Any:
    """``SoundFile`` that does not seek.

    soundfile seeks after whatever it reads, to where it is; after that libsndfile 1.2.2 gives
    samples of MP3 that differ in their last bits.
    """

    class Forwards(library.SoundFile):
        def seekable(self) -> bool:
            return False

    return Forwards
