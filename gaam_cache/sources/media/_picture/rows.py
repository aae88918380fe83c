"""Rows of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.sources.media._base import Media
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._flaws import flaws_of
from gaam_cache.sources.media._picture.decoding import decode


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A picture."""

    blob: Blob
    width: int
    """In pixels, when it is held upright."""
    height: int

    @property
    def identity(self) -> bytes:
        """The digest of the file."""
        return bytes.fromhex(self.blob.sha256)

    def pixels(self) -> NDArray[np.uint8]:
        """What is seen: shape (height, width, 3), RGB.

        Raises:
            DataError: the file was changed, or cannot be decoded.
        """
        with flaws_of(self.blob.where):
            rgb_HWC = decode(self.blob.read())
        if rgb_HWC.shape != (self.height, self.width, 3):
            raise DataError(
                "a picture is not as large as it was",
                expected=f"{self.width:,} x {self.height:,}",
                found=f"{rgb_HWC.shape[1]:,} x {rgb_HWC.shape[0]:,}",
                where=self.blob.where,
                hint="decode with the Pillow that read the rows",
            )
        return rgb_HWC


@dataclass(frozen=True, kw_only=True, slots=True)
class Pictures(Media):
    """Rows whose inputs are pictures."""

    kind: ClassVar[str] = "vision"
    noun: ClassVar[str] = "picture"
    inputs: Sequence[Picture]
