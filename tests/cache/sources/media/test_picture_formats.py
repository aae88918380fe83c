"""Pictures are what is seen of them: against the array that was written, and brute force."""

from __future__ import annotations

import struct
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import install
from gaam_cache.sources.media.vision import Vision
from tests.cache.sources.media.making import look, picture
from tests.cache.sources.media.making_pictures import (
    RNG,
    SIZES,
    grey,
    noise,
    on_white,
    saved,
    smooth,
)


def test_colours_and_greys_without_loss_are_what_was_written() -> None:
    options: dict[str, list[dict[str, Any]]] = {
        "PNG": [{}, {"optimize": True}],
        "BMP": [{}],
        "PPM": [{}],
        "WEBP": [{"lossless": True}],
        "TIFF": [{}, *({"compression": c} for c in ("tiff_lzw", "tiff_adobe_deflate", "packbits"))],
        "GIF": [],
    }
    for (height, width), (kind, each) in product(SIZES, options.items()):
        rgb_HWC, grey_HW = noise(height, width, 3), noise(height, width)
        black_HW = grey_HW > 127
        for extra in each:
            message = f"{kind} {height} x {width} {extra}"
            colour = saved(Image.fromarray(rgb_HWC), kind, **extra)
            np.testing.assert_array_equal(picture(colour), rgb_HWC, message)
            if kind != "WEBP":
                found = picture(saved(Image.fromarray(grey_HW), kind, **extra))
                np.testing.assert_array_equal(found, grey(grey_HW), message)
                found = picture(saved(Image.fromarray(black_HW), kind, **extra))
                np.testing.assert_array_equal(found, grey(black_HW * 255), message)
        found = picture(saved(Image.fromarray(grey_HW), "GIF"))
        np.testing.assert_array_equal(found, grey(grey_HW))


def test_jpeg_and_webp_are_close_to_what_was_written() -> None:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"subsampling": 0, "optimize": True}),
        ("WEBP", {}),
    ]
    for (height, width), (kind, options) in product(SIZES, kinds):
        rgb_HWC = smooth(height, width, 3)
        found = picture(saved(Image.fromarray(rgb_HWC), kind, quality=95, **options))
        assert np.abs(found.astype(int) - rgb_HWC).max() < 16, (kind, height, width)
        if kind == "JPEG":
            found = picture(saved(Image.fromarray(rgb_HWC[..., 0]), kind, quality=95))
            assert np.abs(found.astype(int) - grey(rgb_HWC[..., 0])).max() < 6


def test_cmyk_is_ink_on_paper() -> None:
    """Of JPEG, where Adobe's are written inverted, and of TIFF."""
    for height, width in SIZES:
        cmyk_HWC = smooth(height, width, 4)
        ink_HWC = cmyk_HWC.astype(float) / 255
        expected_HWC = 255 * (1 - ink_HWC[..., :3]) * (1 - ink_HWC[..., 3:])
        image = Image.frombytes("CMYK", (width, height), cmyk_HWC.tobytes())
        for kind, options, most in (("JPEG", {"quality": 100}, 8), ("TIFF", {}, 1.5)):
            found = picture(saved(image, kind, **options))
            assert np.abs(found - expected_HWC).max() <= most, kind


def test_palettes_show_their_colours() -> None:
    for (height, width), colours in product(SIZES, (2, 4, 16, 256)):
        index_HW = RNG.integers(0, colours, (height, width), dtype=np.uint8)
        table_KC = noise(1, colours, 3)[0]
        image = Image.fromarray(index_HW)
        image.putpalette(table_KC.tobytes())
        for kind in ("PNG", "GIF", "BMP", "TIFF"):
            found = picture(saved(image, kind))
            np.testing.assert_array_equal(found, table_KC[index_HW], f"{kind} {colours}")
        alpha_K = noise(1, colours)[0]
        found = picture(saved(image, "PNG", transparency=alpha_K.tobytes()))
        np.testing.assert_array_equal(found, on_white(table_KC[index_HW], alpha_K[index_HW]))
        for kind in ("PNG", "GIF"):
            found = picture(saved(image, kind, transparency=1))
            hidden_HW1 = (index_HW == 1)[..., None]
            np.testing.assert_array_equal(found, np.where(hidden_HW1, 255, table_KC[index_HW]))


def test_what_is_transparent_shows_white() -> None:
    for height, width in SIZES:
        rgba_HWC = noise(height, width, 4)
        rgba_HWC.flat[3::28] = 0
        rgba_HWC.flat[7::28] = 255
        expected_HWC = on_white(rgba_HWC[..., :3], rgba_HWC[..., 3])
        for kind, options in (
            ("PNG", {}),
            ("TIFF", {}),
            ("WEBP", {"lossless": True, "exact": True}),
        ):
            found = picture(saved(Image.fromarray(rgba_HWC), kind, **options))
            np.testing.assert_array_equal(found, expected_HWC, kind)
        la_HWC = rgba_HWC[..., 2:]
        expected_HWC = on_white(grey(la_HWC[..., 0]), la_HWC[..., 1])
        image = Image.frombytes("LA", (width, height), la_HWC.tobytes())
        for kind in ("PNG", "TIFF"):
            np.testing.assert_array_equal(picture(saved(image, kind)), expected_HWC, kind)
        rgba_HWC[..., 3] = 255
        found = picture(saved(Image.fromarray(rgba_HWC), "PNG"))
        np.testing.assert_array_equal(found, rgba_HWC[..., :3])


def test_grey_of_16_bits_in_tiff_and_ppm() -> None:
    for height, width in SIZES:
        deep_HW = RNG.integers(0, 65536, (height, width), dtype=np.uint16)
        for kind in ("TIFF", "PPM", "PNG"):
            np.testing.assert_array_equal(
                picture(saved(Image.fromarray(deep_HW), kind)), grey(deep_HW >> 8), kind
            )


def test_orientations_turn_as_the_camera_was_held() -> None:
    """Where row and column 0 are seen, as the standard of EXIF tells it."""
    height, width = 6, 4
    stored_HWC = smooth(height, width, 3)
    turned: dict[int, Any] = {
        1: lambda y, x: (y, x),
        2: lambda y, x: (y, width - 1 - x),
        3: lambda y, x: (height - 1 - y, width - 1 - x),
        4: lambda y, x: (height - 1 - y, x),
        5: lambda y, x: (x, y),
        6: lambda y, x: (x, height - 1 - y),
        7: lambda y, x: (width - 1 - x, height - 1 - y),
        8: lambda y, x: (width - 1 - x, y),
    }
    for kind, options in (("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True}), ("JPEG", {})):
        plain_HWC = picture(saved(Image.fromarray(stored_HWC), kind, **options))
        for orientation in (*turned, 0, 9, 255):
            exif = Image.Exif()
            exif[0x0112] = orientation
            found = picture(saved(Image.fromarray(stored_HWC), kind, exif=exif, **options))
            place = turned.get(orientation, turned[1])
            expected_HWC = np.empty_like(found)
            for y, x in product(range(height), range(width)):
                expected_HWC[place(y, x)] = plain_HWC[y, x]
            np.testing.assert_array_equal(found, expected_HWC, f"{kind} {orientation}")


def test_what_nobody_can_say_the_brightness_of_is_refused() -> None:
    whole_HW = np.arange(12, dtype=np.int32).reshape(3, 4)
    lab = Image.frombytes("LAB", (4, 3), noise(3, 4, 3).tobytes())
    for image in (Image.fromarray(whole_HW), Image.fromarray(whole_HW.astype(np.float32)), lab):
        with pytest.raises(DataError, match="nobody can say"):
            picture(saved(image, "TIFF"))
    deep = saved(Image.fromarray(whole_HW.astype(np.uint16)), "TIFF")
    for tag, value, other in ((262, 1, 0), (339, 1, 2)):  # white is zero; numbers with a sign
        field = struct.pack("<HHIHH", tag, 3, 1, value, 0)
        if field in deep:
            changed = deep.replace(field, struct.pack("<HHIHH", tag, 3, 1, other, 0))
            with pytest.raises(DataError, match="nobody can say"):
                picture(changed)


def test_several_pictures_in_a_file_are_refused() -> None:
    pages = [Image.fromarray(noise(8, 8, 3)) for _ in range(3)]
    for kind in ("PNG", "GIF", "WEBP", "TIFF"):
        content = saved(pages[0], kind, save_all=True, append_images=pages[1:])
        with pytest.raises(DataError, match="several pictures"):
            look(Vision, content)
        assert picture(saved(pages[0], kind, save_all=True)).shape == (8, 8, 3)
    first = saved(pages[0], "JPEG")
    many = saved(pages[0], "MPO", save_all=True, append_images=pages[1:])
    np.testing.assert_array_equal(picture(many), picture(first))


def test_what_others_told_pillow_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved(Image.fromarray(noise(30, 30, 3)), "BMP")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DataError, match="cannot be decoded"):
        look(Vision, content[:-100])


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved(Image.fromarray(noise(3, 3, 3)), "PNG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError) as caught:
        look(Vision, content)
    assert caught.value.details["to do"] == install("vision")
