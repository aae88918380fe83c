"""One picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.sources.media._base import Media
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._decode_picture import decoded


@dataclass(frozen=True, slots=True)
class Picture:
    """A file of which the size is known."""

    blob: Blob
    width: int
    """After the orientation that a camera noted."""
    height: int

    @property
    def identity(self) -> bytes:
        """SHA-256 of the file."""
        return bytes.fromhex(self.blob.sha256)

    def pixels(self) -> NDArray[np.uint8]:
        """(H, W, 3); read and decoded whenever it is asked for, see ``decoded``.

        Raises:
            DataError: the file cannot be read, or is not what it was.
        """
        return decoded(self.blob.read(), self.blob.where)


class Pictures(Media):
    """Rows whose inputs are pictures."""

    kind: ClassVar[str] = "vision"
    noun: ClassVar[str] = "picture"
