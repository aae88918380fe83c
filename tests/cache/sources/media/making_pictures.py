"""Pictures, made on the fly, and what is seen of them."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RNG = np.random.default_rng(0)
SIZES = ((1, 1), (1, 9), (9, 1), (5, 7), (16, 16), (33, 17))
"""Height and width."""


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(height: int, width: int, *channels: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, (height, width, *channels), dtype=np.uint8)


def smooth(height: int, width: int, channels: int) -> NDArray[np.uint8]:
    y_HW, x_HW = np.mgrid[:height, :width]
    planes = [100 + 50 * np.sin((c + 1) * y_HW / height + x_HW / width) for c in range(channels)]
    return np.stack(planes, axis=2).astype(np.uint8)


def grey(values_HW: NDArray[Any]) -> NDArray[np.uint8]:
    return np.repeat(values_HW.astype(np.uint8)[..., None], 3, axis=2)


def on_white(rgb_HWC: NDArray[np.uint8], alpha_HW: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """In exact fractions, rounded to the nearest."""
    alpha_HW1 = alpha_HW.astype(np.float64)[..., None] / 255
    seen_HWC = rgb_HWC * alpha_HW1 + 255 * (1 - alpha_HW1)
    return np.floor(seen_HWC + 0.5 - 1e-9).astype(np.uint8)


def png(
    colour: int, bits: int, width: int, rows: list[bytes], *extra: tuple[bytes, bytes]
) -> bytes:
    """Written by hand: not interlaced, no filter."""
    head = struct.pack(">IIBBBBB", width, len(rows), bits, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [(b"IHDR", head), *extra, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
