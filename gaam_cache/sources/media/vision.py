"""Pictures in files: PNG, JPEG, GIF, WebP, BMP, TIFF, PPM, by Pillow alone."""

import io
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources.media._base import Item, Media, library

RULES = "upright, on white, the upper 8 of 16 bits"
"""What we make of what Pillow reads; to be changed with it, for it decides numbers."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "MPO")
"""Nothing else is tried, such as what would start another program."""
STARTS = (
    *(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    *(b"P%d" % number for number in range(1, 7)),
)
MODES = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"})
"""Pillow's modes of 8 bits or fewer, of which it is known what they look like."""


class _Picture(Item):
    """A picture."""

    __slots__ = ()

    def pixels(self) -> NDArray[np.uint8]:
        """What is seen: shape (height, width, 3), RGB."""
        return _decoded(self.content(), self.where)


class Vision(Media):
    """Pictures: what is seen of them, in 8 bits of red, green and blue.

    Turned upright as EXIF says, and on white where transparent (``convert("RGB")`` shows the
    colours that a transparent pixel happens to hold, mostly black). Of 16 bits the upper 8 are
    taken; CMYK is converted as Pillow does; no colour profile is applied. Fractions, whole numbers
    of 32 bits and LAB are refused: nobody can say how bright they are meant to be. So are
    animations and files of several pages.
    """

    kind: ClassVar[str] = "vision"
    noun: ClassVar[str] = "picture"
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
        | {".ppm", ".pgm", ".pbm", ".pnm"}
    )

    @classmethod
    def claims(cls, head: bytes) -> bool:
        return head.startswith(STARTS) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")

    @classmethod
    def items(cls, content: bytes, config: ExtractConfig, **file: Any) -> Sequence[_Picture]:  # noqa: ARG003
        _decoded(content, Item(**file).where)
        return [_Picture(**file)]

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """Pillow, and its decoders where there is more than one right way to make pixels."""
        features = library("PIL.features", cls.kind)
        jpeg = "libjpeg_turbo" if features.version("libjpeg_turbo") else "jpg"
        found = {name: features.version(name) for name in (jpeg, "webp")}
        some = {name: str(version) for name, version in found.items() if version}
        return {"gaam": RULES, "pillow": str(features.version("pil"))} | some


def _decoded(content: bytes, where: str) -> NDArray[np.uint8]:
    """The pixels of a picture file: (height, width, 3), RGB, upright."""
    module, operations = library("PIL.Image", "vision"), library("PIL.ImageOps", "vision")
    try:
        with warnings.catch_warnings(), module.open(io.BytesIO(content), formats=FORMATS) as image:
            warnings.simplefilter("ignore")
            pages = getattr(image, "n_frames", 1)
            if pages > 1 and image.format != "MPO":  # a JPEG with a preview: the first is meant
                raise ValueError(f"{pages} pictures in one file; one is expected")
            image.load()
            return np.ascontiguousarray(_rgb(operations.exif_transpose(image)))
    except Exception as error:  # whatever a damaged file leads a decoder to
        raise DataError(
            "a picture cannot be decoded",
            expected="a whole picture of 8 bits, or of 16 bits of grey",
            found=str(error) or type(error).__name__,
            where=where,
            hint="get the file again or convert it to PNG, or remove its row",
        ) from error


def _rgb(image: Any) -> NDArray[np.uint8]:
    """What is seen of a loaded picture, on white: shape (height, width, 3)."""
    hidden = image.info.get("transparency")
    if image.mode.startswith("I;16") and hidden is None:
        grey_HW1 = (np.array(image) >> 8).astype(np.uint8)[..., None]
        return np.repeat(grey_HW1, 3, axis=2)
    if image.mode not in MODES:
        raise ValueError(f"values of Pillow's mode {image.mode}, whose brightness nobody knows")
    if hidden is None and image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        return np.array(image.convert("RGB"))
    rgba_HWC = np.array(image.convert("RGBA"))
    rgb_HWC, alpha_HW1 = rgba_HWC[..., :3].astype(np.uint16), rgba_HWC[..., 3:].astype(np.uint16)
    on_white_HWC = rgb_HWC * alpha_HW1 + 255 * (255 - alpha_HW1)
    return ((on_white_HWC + np.uint16(127)) // np.uint16(255)).astype(np.uint8)
