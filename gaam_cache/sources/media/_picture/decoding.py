"""Pixels from the bytes of a picture file, by Pillow."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError
from gaam_cache.messages import install
from gaam_cache.sources.media._flaws import UNUSABLE_KIND, Flaw
from gaam_cache.sources.media._picture import structure
from gaam_cache.sources.media._picture.structure import animated, check_size

SIGNATURES: dict[str, re.Pattern[bytes]] = {
    "PNG": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "JPEG": re.compile(rb"\xff\xd8\xff"),
    "GIF": re.compile(rb"GIF8[79]a"),
    "WEBP": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "BMP": re.compile(rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL),
    "TIFF": re.compile(rb"II\*\0|MM\0\*|II\+\0|MM\0\+"),
    "PPM": re.compile(rb"P[1-6]\s+[\d#]"),
}
"""How a file begins, by Pillow's name of its format: nothing else is tried, such as what would
start another program."""
STRUCTURES: dict[str, Callable[[bytes], None]] = {
    "PNG": structure.png,
    "JPEG": structure.jpeg,
    "GIF": structure.gif,
    "WEBP": structure.webp,
}
"""What is checked before Pillow sees a file; of the others it does so itself."""
MODES = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"})
"""Pillow's modes of 8 bits or fewer, of which it is known what they look like."""
DEEP = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
"""Its modes of one channel of 16 bits."""
BITS_PER_SAMPLE, PHOTOMETRIC, SAMPLES, PLANES, SAMPLE_FORMAT = 258, 262, 277, 284, 339
STRIPS, ROWS_PER_STRIP, TILE_WIDTH, TILE_HEIGHT, TILES = 273, 278, 322, 323, 324
"""Tags of TIFF (TIFF 6.0)."""
ORIENTATION = 0x0112
"""Tag of EXIF."""
_TURNED: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: np.fliplr,
    3: lambda x_HWC: np.rot90(x_HWC, 2),
    4: np.flipud,
    5: lambda x_HWC: x_HWC.swapaxes(0, 1),
    6: lambda x_HWC: np.rot90(x_HWC, -1),
    7: lambda x_HWC: np.rot90(x_HWC, 2).swapaxes(0, 1),
    8: np.rot90,
}
"""How a picture is held upright, by what EXIF says of the camera."""


def format_of(head: bytes) -> str | None:
    """Pillow's name of the format of a file that begins so; None where it is no picture."""
    return next((name for name, sign in SIGNATURES.items() if sign.match(head)), None)


def decode(content: bytes) -> NDArray[np.uint8]:
    """The pixels of a picture file.

    Shape:
        (height, width, 3), RGB, upright.

    Raises:
        Flaw: it is no picture, damaged, too large, or holds what has no place in 8 bits of RGB.
        ConfigError: Pillow is not installed.
    """
    kind = format_of(content[:64])
    if kind is None:
        raise Flaw(
            "this is no picture that can be read",
            expected="PNG, JPEG, GIF, WebP, BMP, TIFF or PPM",
            found=repr(content[:12]),
            hint=UNUSABLE_KIND,
        )
    if kind in STRUCTURES:
        STRUCTURES[kind](content)
    module = pillow()
    try:
        with module.open(io.BytesIO(content), formats=[kind]) as image:
            check_size(*image.size)
            count = getattr(image, "n_frames", 1) if kind != "JPEG" else 1
            if count > 1:
                raise animated(count, kind)
            if kind == "TIFF":
                _check_strips(image)
            image.load()
            if kind == "PNG":
                _scale_transparent(image, bits=content[24], colour=content[25])
            rgb_HWC = _rgb(image)
            orientation = _orientation(image)
    except (Flaw, ConfigError):
        raise
    except Exception as error:  # whatever a damaged file leads a decoder to
        raise Flaw("a picture cannot be decoded", found=f"{error or type(error)}") from error
    upright = _TURNED.get(orientation)
    return np.ascontiguousarray(upright(rgb_HWC) if upright else rgb_HWC)


def pillow() -> Any:
    """The module ``PIL.Image``, which makes up nothing that is missing, whatever it was told.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        from PIL import Image, ImageFile
    except ImportError as error:
        raise ConfigError(
            "pictures are decoded by Pillow, which is not installed",
            found=str(error),
            hint=install("vision"),
        ) from error
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    _no_warnings()
    return Image


@cache
def _no_warnings() -> None:
    """What is too large or damaged is refused by us, as far as it can be seen."""
    warnings.filterwarnings("ignore", module=r"PIL\.")


def _check_strips(image: Any) -> None:
    """All parts of a TIFF are listed: Pillow leaves black what is not. Its numbers have no sign."""
    tags, (width, height) = image.tag_v2, image.size
    if set(tags.get(SAMPLE_FORMAT, (1,))) != {1}:
        raise _unknown_mode(f"{image.mode} of numbers with a sign", "TIFF")
    if TILES in tags:
        columns, rows = -(-width // tags[TILE_WIDTH]), -(-height // tags[TILE_HEIGHT])
    else:
        columns, rows = 1, -(-height // min(tags.get(ROWS_PER_STRIP, height), height))
    planes = tags.get(SAMPLES, 1) if tags.get(PLANES, 1) == 2 else 1
    found = len(tags.get(TILES if TILES in tags else STRIPS, ()))
    if found != columns * rows * planes:
        raise Flaw("the TIFF file is damaged", f"{columns * rows * planes:,} parts", f"{found:,}")


def _scale_transparent(image: Any, *, bits: int, colour: int) -> None:
    """Grey of 2 and 4 bits becomes 8, and Pillow forgets to scale the grey that is transparent."""
    hidden = image.info.get("transparency")
    if colour == 0 and bits in (2, 4) and isinstance(hidden, int):
        image.info["transparency"] = (hidden & 2**bits - 1) * (255 // (2**bits - 1))


def _rgb(image: Any) -> NDArray[np.uint8]:
    """What is seen of a loaded picture, on white: shape (height, width, 3)."""
    mode, hidden = image.mode, image.info.get("transparency")
    if mode in DEEP or (mode == "I" and image.format == "PPM"):
        return _from_16_bits(image, hidden)
    if mode not in MODES:
        raise _unknown_mode(mode, image.format)
    if mode == "RGB" and isinstance(hidden, tuple) and max(hidden) > 255:
        raise Flaw(
            "a picture of 16 bits has a transparent colour, which cannot be told in 8 bits",
            expected="8 bits, or an alpha channel",
            found=f"the colour {hidden} in {image.format}",
            hint=UNUSABLE_KIND,
        )
    if hidden is None and mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return np.array(image.convert("RGB"))
    rgba = image if mode == "RGBA" else image.convert("RGBA")
    seen_HWC = np.array(rgba)
    alpha_HW1 = seen_HWC[..., 3:]
    rgb_HWC = seen_HWC[..., :3]
    if alpha_HW1.min() == 255:
        return rgb_HWC
    sum_HWC = rgb_HWC * alpha_HW1.astype(np.uint16) + 255 * (255 - alpha_HW1.astype(np.uint16))
    return ((sum_HWC + np.uint16(127)) // np.uint16(255)).astype(np.uint8)


def _from_16_bits(image: Any, hidden: Any) -> NDArray[np.uint8]:
    """Grey of 16 bits: its upper 8, as Pillow takes of colours of 16 bits."""
    if image.format == "TIFF":
        bits, kind = image.tag_v2.get(BITS_PER_SAMPLE), image.tag_v2.get(PHOTOMETRIC)
        if bits != (16,) or kind != 1:
            raise _unknown_mode(f"{image.mode} of {bits} bits and kind {kind}", image.format)
    grey_HW = np.array(image).astype(np.int64)
    if grey_HW.min() < 0 or grey_HW.max() > 65535:
        raise _unknown_mode(image.mode, image.format)
    seen_HW = np.where(grey_HW == hidden, 255, grey_HW >> 8) if hidden is not None else grey_HW >> 8
    return np.repeat(seen_HW.astype(np.uint8)[..., None], 3, axis=2)


def _unknown_mode(mode: str, kind: str) -> Flaw:
    return Flaw(
        "a picture has values of which nobody can say what they look like",
        expected="grey or colours of 8 bits, grey of 16 bits, CMYK or a palette",
        found=f"Pillow's mode {mode} in {kind}",
        hint="convert it to PNG of 8 bits, in a way that you know to be right",
    )


def _orientation(image: Any) -> int:
    """What EXIF says; 1, upright, where nothing that can be read does."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # noqa: BLE001 it is damaged in many ways, and no viewer turns it then
        return 1
    return found if isinstance(found, int) else 1
