"""Files of sounds and pictures in memory, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.format.digest import digest_of
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media.vision import Vision


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBlob(Blob):
    content: bytes

    def _read(self) -> bytes:
        return self.content


def blob(content: bytes) -> MemoryBlob:
    return MemoryBlob(where="here", size=len(content), sha256=digest_of(content), content=content)


def look(medium: Any, content: bytes, **changes: Any) -> list[Any]:
    """The items of a file."""
    there = blob(content)
    return [
        medium.item(there, facts)
        for facts in medium.look(there, ExtractConfig(dataset="unused", **changes))
    ]


def picture(content: bytes) -> NDArray[np.uint8]:
    """Pixels of a file that is one row."""
    (item,) = look(Vision, content)
    pixels_HWC = item.pixels()
    assert pixels_HWC.shape == (item.height, item.width, 3)
    assert pixels_HWC.dtype == np.uint8
    return pixels_HWC
