"""One sound, and rows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.sources.media._base import Media
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._decoder import Decoder
from gaam_cache.sources.media._sounds._kept import taken
from gaam_cache.sources.media._sounds._promise import damaged


@dataclass(frozen=True, kw_only=True, slots=True)
class Sound:
    """All of a file, or a piece of it."""

    blob: Blob
    rate: int
    """Of the file, in Hz."""
    start: int
    """The first sample that is its own."""
    stop: int
    """One past the last."""
    whole: int
    """Samples of the file."""

    @property
    def frames(self) -> int:
        """Samples that are its own."""
        return self.stop - self.start

    @property
    def identity(self) -> bytes:
        """The digest of the file, and which samples of it where that is not all."""
        part = "" if self.frames == self.whole else f"{self.start}-{self.stop}"
        return bytes.fromhex(self.blob.sha256) + part.encode()

    def samples(self) -> NDArray[np.float32]:
        """Decoded: float32 (frames,), the mean of all channels.

        Raises:
            DataError: the file cannot be read, or is no longer what it was.
            ConfigError: what decodes sounds is not installed.
        """
        with taken(self.blob, self.start, more=self.stop < self.whole) as decoder:
            return self._decoded(decoder)

    def _decoded(self, decoder: Decoder) -> NDArray[np.float32]:
        decoder.skip(self.start)
        x_T = np.empty(self.frames, np.float32)
        at = 0
        for block_T in decoder.blocks(self.stop):
            x_T[at : at + len(block_T)] = block_T
            at += len(block_T)
        if at != self.frames:
            found, expected = (
                f"{at:,} samples from {self.start:,} on",
                f"{self.frames:,}, as before",
            )
            raise damaged(found, expected).at(self.blob.where)
        return x_T


@dataclass(frozen=True, kw_only=True, slots=True)
class Sounds(Media):
    """Rows of sounds."""

    kind: ClassVar[str] = "audio"
    noun: ClassVar[str] = "sound"
