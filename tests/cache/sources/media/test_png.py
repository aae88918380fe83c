"""PNG of every depth, written by hand: Pillow writes none of 2, 4 and 16 bits with colours."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from gaam_cache.errors import DataError
from tests.cache.sources.media.making import picture
from tests.cache.sources.media.making_pictures import RNG, SIZES, grey, on_white, png


def test_png_of_every_depth() -> None:
    channels = {0: 1, 2: 3, 4: 2, 6: 4}
    for colour, count in channels.items():
        for height, width in SIZES:
            deep_HWC = RNG.integers(0, 65536, (height, width, count), dtype=np.uint16)
            content = png(colour, 16, width, [row.astype(">u2").tobytes() for row in deep_HWC])
            upper_HWC = (deep_HWC >> 8).astype(np.uint8)
            rgb_HWC = grey(upper_HWC[..., 0]) if count < 3 else upper_HWC[..., :3]
            if count in (2, 4):
                rgb_HWC = on_white(rgb_HWC, upper_HWC[..., -1])
            np.testing.assert_array_equal(picture(content), rgb_HWC, f"colour {colour}")
    for bits in (1, 2, 4):
        for width in range(1, 20):
            value_W = RNG.integers(0, 2**bits, width)
            digits = "".join(f"{value:0{bits}b}" for value in value_W)
            row = bytes(
                int(digits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(digits), 8)
            )
            expected_W = value_W * 255 // (2**bits - 1)
            found = picture(png(0, bits, width, [row, row]))
            np.testing.assert_array_equal(found, grey(np.stack([expected_W] * 2)), f"{bits} bits")
            hidden = (b"tRNS", struct.pack(">H", value_W[0]))
            found = picture(png(0, bits, width, [row], hidden))
            seen_W = np.where(value_W == value_W[0], 255, expected_W)
            np.testing.assert_array_equal(found, grey(seen_W[None]), f"{bits} bits, transparent")


def test_a_transparent_colour_of_16_bits() -> None:
    deep_HW = np.array([[1000, 1001, 40000]], np.uint16)
    hidden = (b"tRNS", struct.pack(">H", 1001))
    content = png(0, 16, 3, [deep_HW.astype(">u2").tobytes()], hidden)
    np.testing.assert_array_equal(picture(content), grey(np.array([[3, 255, 156]])))
    hidden = (b"tRNS", struct.pack(">HHH", 1000, 1001, 40000))
    with pytest.raises(DataError, match="transparent colour"):
        picture(png(2, 16, 1, [deep_HW.astype(">u2").tobytes()], hidden))
