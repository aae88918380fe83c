"""A damaged picture is refused, or all of it comes out; sizes that cannot be are never tried."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gaam_cache.errors import DataError
from gaam_cache.sources.media.audio import Audio
from gaam_cache.sources.media.vision import Vision
from tests.cache.sources.media.making import blob, look, picture
from tests.cache.sources.media.making_pictures import noise, png, saved, smooth
from tests.cache.sources.media.sounds import noise as noise_of_sound
from tests.cache.sources.media.sounds import written


def small_pictures() -> Iterator[tuple[str, bytes]]:
    """A file of every format and kind of pixels."""
    rgb, grey = Image.fromarray(smooth(12, 10, 3)), Image.fromarray(noise(12, 10))
    rgba, deep = (
        Image.fromarray(noise(12, 10, 4)),
        Image.fromarray(noise(12, 10).astype("u2") * 257),
    )
    palette, cmyk = rgb.convert("P"), rgb.convert("CMYK")
    kinds: list[tuple[str, dict[str, Any], list[Image.Image]]] = [
        ("PNG", {}, [rgb, grey, rgba, deep, palette]),
        ("JPEG", {}, [rgb, grey, cmyk]),
        ("JPEG", {"progressive": True}, [rgb]),
        ("GIF", {}, [grey, palette]),
        ("WEBP", {}, [rgb, rgba]),
        ("WEBP", {"lossless": True}, [rgb, rgba]),
        ("BMP", {}, [rgb, grey, palette]),
        ("PPM", {}, [rgb, grey, deep]),
        ("TIFF", {}, [rgb, grey, rgba, deep, palette, cmyk]),
        *(("TIFF", {"compression": c}, [rgb]) for c in ("tiff_lzw", "tiff_adobe_deflate", "jpeg")),
    ]
    for kind, options, images in kinds:
        for image in images:
            words = (kind, image.mode, *map(str, options.values()))
            yield " ".join(words), saved(image, kind, **options)


pytestmark = [  # Pillow's, of what is damaged
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning"),
]
FILES = [pytest.param(*x, id=x[0]) for x in small_pictures()]


@pytest.mark.parametrize(("name", "content"), FILES)
def test_every_length_that_is_cut_off_is_refused_or_has_all_pixels(
    name: str, content: bytes
) -> None:
    whole_HWC = picture(content)
    accepted = 0
    for length in range(len(content)):
        refused = refusal(content[:length])
        if refused is None:
            accepted += 1
            np.testing.assert_array_equal(picture(content[:length]), whole_HWC, str(length))
        else:
            assert {"where", "found", "to do"} <= set(refused.details), (length, refused)
    if name.startswith(("PNG", "JPEG", "GIF", "WEBP", "PPM")):
        assert accepted == 0


@pytest.mark.parametrize(("name", "content"), FILES)
def test_every_byte_that_is_changed_leaves_a_picture_or_a_refusal(
    name: str, content: bytes
) -> None:
    whole_HWC = picture(content)
    for position, mask in zip(range(len(content)), cycle((0x01, 0xFF, 0x80, 0x10)), strict=False):
        changed = bytearray(content)
        changed[position] ^= mask
        if refusal(bytes(changed)) is None and name.startswith("PNG"):
            np.testing.assert_array_equal(picture(bytes(changed)), whole_HWC, str(position))


def refusal(content: bytes) -> DataError | None:
    try:
        look(Vision, content)
    except DataError as error:
        return error
    return None


def test_the_first_of_several_is_not_taken_where_the_others_are_cut_off() -> None:
    pages = [Image.fromarray(noise(8, 8, 3)) for _ in range(3)]
    for kind in ("PNG", "GIF", "WEBP", "TIFF"):
        content = saved(pages[0], kind, save_all=True, append_images=pages[1:])
        for length in range(len(content)):
            assert refusal(content[:length]) is not None, (kind, length)


def test_a_tiff_that_lacks_parts_is_refused() -> None:
    for mode in ("L", "RGB", "CMYK"):
        image = Image.fromarray(smooth(40, 10, 3)).convert(mode)
        content = saved(image, "TIFF")
        for taller in (41, 80, 1000):
            changed = content.replace(
                struct.pack("<HHII", 257, 4, 1, 40), struct.pack("<HHII", 257, 4, 1, taller)
            )
            changed = changed.replace(
                struct.pack("<HHIHH", 257, 3, 1, 40, 0), struct.pack("<HHIHH", 257, 3, 1, taller, 0)
            )
            assert changed != content
            assert refusal(changed) is not None, (mode, taller)


def test_what_is_no_picture_is_refused() -> None:
    for content in (b"", b"x", b"once upon a time", b"%PDF-1.4\n", b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        with pytest.raises(DataError):
            look(Vision, content)


def test_no_file_is_claimed_as_both() -> None:
    for kind, code in (
        ("WAV", "PCM_16"),
        ("FLAC", None),
        ("OGG", None),
        ("MP3", None),
        ("AIFF", None),
    ):
        content = written(noise_of_sound(2000, 1), 16000, kind, code)
        assert Audio.claims(content[:64])
        assert not Vision.claims(content[:64])
    for content in dict(small_pictures()).values():
        assert Vision.claims(content[:64])
        assert not Audio.claims(content[:64])
    for head in (
        b"",
        b"id,label\n",
        b"BMW is a car",
        b"RIFF1234AVI ",
        b"\xff\xfea\0",
    ):
        assert not Audio.claims(head)
        assert not Vision.claims(head)
    assert not Audio.suffixes & Vision.suffixes


def test_chunks_that_unfold_to_very_much_are_refused_or_left_folded() -> None:
    folded = zlib.compress(bytes(200 * 2**20), 9)
    row = bytes(3)
    for extra in ((b"iCCP", b"x\0\0" + folded), (b"zTXt", b"x\0\0" + folded)):
        try:
            (item,) = look(Vision, png(2, 8, 1, [row], extra))
        except DataError:
            continue
        assert item.pixels().tolist() == [[[0, 0, 0]]]


def test_a_file_that_is_too_large_is_not_read() -> None:
    there = blob(b"")
    object.__setattr__(there, "size", 2**30 + 1)
    with pytest.raises(DataError, match="too large"):
        Vision.look(there, None)  # type: ignore[arg-type]
