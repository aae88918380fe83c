"""Bytes of a picture -> pixels, by Pillow; or why not.

H height, W width.
"""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 1024 * 1024 * 1024 // 4 // 3
"""89 million, from which on Pillow warns of a bomb: a quarter of a GiB of red, green and blue."""
PNG = b"\x89PNG\r\n\x1a\n"
OF_BMP = {12, 40, 52, 56, 64, 108, 124}
"""Sizes that the header of a bitmap has."""
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")


def format_of(head: bytes) -> str | None:
    """What Pillow calls the format of a file that begins so; None where it is no picture.

    Nothing else is ever tried: some of Pillow's formats start other programs.
    """
    if head.startswith(PNG):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in OF_BMP:
        return "BMP"
    if head[:4] in (b"II*\0", b"MM\0*"):
        return "TIFF"
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3].isspace():
        return "PPM"
    return None


def size_of(content: bytes, where: str) -> tuple[int, int]:
    """Width and height of a picture that can be decoded; raises as ``decoded``."""
    height, width, _ = decoded(content, where).shape
    return width, height


def decoded(content: bytes, where: str) -> NDArray[np.uint8]:
    """The pixels of a picture, (H, W, 3): red, green, blue.

    As ``convert("RGB")`` of Pillow makes them, which is how torchvision and most others read:
    transparency is left out (hidden colours are seen), a palette is looked up, ink (CMYK) is mixed
    without a colour profile. The orientation that a camera noted is applied. Of sixteen bits the
    upper eight are taken, of grey as of colours, where Pillow would cut grey off at 255.

    Raises:
        DataError: it is empty, damaged, of no known format, larger than ``MOST_PIXELS``, moves or
            has pages, or has pixels of another kind (whole numbers of 32 bits, fractions, Lab).
        ConfigError: Pillow is not installed.
    """
    library = pillow()
    if not content:
        raise DataError("a file is empty", expected="a picture", found="0 bytes", where=where)
    name = format_of(content[:64])
    if name is None:
        raise DataError(
            "a file is no picture that can be read",
            expected="PNG, JPEG, GIF, WebP, BMP, TIFF, PBM, PGM or PPM",
            found=f"{len(content):,} bytes that begin with {content[:8].hex(' ')}",
            where=where,
        )
    with _refusals(name, where), library.open(io.BytesIO(content), formats=[name]) as picture:
        _check(picture, where)
        if name == "PNG":
            _check_chunks(content)
        picture.load()
        return _pixels(picture, where)


def _check(picture: Any, where: str) -> None:
    """What the header says, before anything is decoded."""
    width, height = picture.size
    if not 0 < width * height <= MOST_PIXELS:
        raise _too_large(f"{width:,} x {height:,}, its header says", where)
    # of phones: the first is the picture, others are made from it
    frames = 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)
    if frames != 1:
        raise DataError(
            "a file holds several pictures",
            expected="one: no animation, no pages",
            found=f"{frames:,} ({picture.format})",
            where=where,
            hint="save the one that is meant as a file of its own",
        )


def _too_large(found: str, where: str) -> DataError:
    return DataError(
        "a picture is too large",
        expected=f"at most {MOST_PIXELS:,} pixels",
        found=found,
        where=where,
        hint="make it smaller: encoders see some hundred pixels a side",
    )


def _check_chunks(content: bytes) -> None:
    """Every chunk of a PNG is whole, to the last: Pillow does not look at all of them.

    Raises:
        ValueError: one is not.
    """
    at = len(PNG)
    while True:
        size = int.from_bytes(content[at : at + 4], "big")
        end = at + 12 + size
        if len(content) < end:
            raise ValueError(f"it ends within a chunk, at byte {len(content):,}")
        name = content[at + 4 : at + 8]
        if zlib.crc32(memoryview(content)[at + 4 : end - 4]) != int.from_bytes(
            content[end - 4 : end], "big"
        ):
            raise ValueError(f"the checksum of the chunk {name!r} at byte {at:,} is wrong")
        if name == b"IEND":
            return
        at = end


def _pixels(picture: Image.Image, where: str) -> NDArray[np.uint8]:
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(picture)
    # Pillow brings grey of more than 255 shades in a PGM to 65,536
    if upright.mode in SIXTEEN_BITS or (picture.format == "PPM" and upright.mode == "I"):
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    if upright.mode in ("I", "F", "LAB", "HSV"):
        raise DataError(
            "a picture has pixels that are no shades of 0 to 255",
            expected="grey or colours of 1 to 16 bits",
            found={"I": "whole numbers of 32 bits", "F": "fractions"}.get(
                upright.mode, upright.mode
            ),
            where=where,
            hint="convert it, so that it is you who says which value is white",
        )
    return np.asarray(upright.convert("RGB"))


@contextmanager
def _refusals(name: str, where: str) -> Iterator[None]:
    """Whatever Pillow says of a file is one message."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except pillow().DecompressionBombError as error:
        raise _too_large(str(error).partition(" exceeds")[0], where) from error
    except Exception as error:  # decoders of hostile files raise what they like
        said = (str(error).strip().splitlines() or [""])[0]
        if said.startswith("cannot identify"):
            said = "its header cannot be read"
        raise DataError(
            "a picture is damaged",
            expected=f"a whole {name} file",
            found=f"{said:.200}" or type(error).__name__,
            where=where,
            hint="mend or remove it",
        ) from error


def pillow() -> Any:
    """The library, set to refuse what is not whole, whatever others have set.

    What is too large is refused by us, what is damaged as far as it can be seen: a warning beside
    it says nothing more.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        from PIL import Image, ImageFile
    except ImportError as error:
        raise ConfigError(
            "pictures need the package Pillow",
            expected="it to be installed",
            found=str(error),
            hint="pip install 'gaam[vision]'",
        ) from error
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    _no_warnings()
    return Image


@cache
def _no_warnings() -> None:
    warnings.filterwarnings("ignore", module=r"PIL\.")
