"""Pictures in files: PNG, JPEG, GIF, WebP, BMP, TIFF, PPM, by Pillow alone."""

import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media.base import Item, Media, library

RULES = "upright, on white, the upper 8 of 16 bits"
"""What we make of what Pillow reads; to be changed with it, for it decides numbers."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "MPO")
"""Nothing else is tried, such as what would start another program."""
STARTS = (
    *(
        b"\x89PNG",
        b"\xff\xd8\xff",
        b"GIF8",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"II+\0",
        b"MM\0+",
    ),
    *(b"P%d" % number for number in range(1, 7)),
)
MODES = frozenset(
    {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"}
)
"""Pillow's modes of 8 bits or fewer, of which it is known what they look like."""


# for good: a filter of one thread that decodes would stay with the others, and hide our warnings
warnings.filterwarnings("ignore", module=r"PIL\.")
GREY_BITS = (10, 12, 14)
"""Of cameras and scanners that write 16 bits."""
FEWEST_LEVELS = 64
"""Of 256: where the pictures of a split have fewer, their values may be no brightness."""


class _Seen(NamedTuple):
    """What a picture file holds."""

    pixels: NDArray[np.uint8]  # (height, width, 3), RGB, upright, on white
    darkest: int  # value in the file
    peak: int  # the brightest one
    depth: int  # bits of a value in the file: 16, or 8 and fewer
    grey: bool  # whether it is of 16 bits and one colour


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture(Item):
    """A picture, and what is known of its brightness."""

    bits: (
        int | None
    )  # of a grey value of 16 bits those that are used, where somebody says so
    darkest: int
    peak: int
    depth: int
    grey: bool
    blank: bool  # whether all of its pixels look the same

    @property
    def identity(self) -> bytes:
        """The digest of the file, and how its grey values are read where that is not as usual."""
        other = self.grey and self.bits not in (None, 16)
        return bytes.fromhex(self.sha256) + (
            f"{self.bits} bits".encode() if other else b""
        )

    def pixels(self) -> NDArray[np.uint8]:
        """What is seen: shape (height, width, 3), RGB."""
        return _decoded(self.content(), self.where, self.bits).pixels


class Vision(Media):
    """Pictures: what is seen of them, in 8 bits of red, green and blue.

    Turned upright as EXIF says, and on white where transparent (``convert("RGB")`` shows the
    colours that a transparent pixel happens to hold, mostly black). Of 16 bits the upper 8 are
    taken, of ``grey_bits`` the upper 8 of those; CMYK is converted as Pillow does; no colour
    profile is applied. Fractions, whole numbers of 32 bits and LAB are refused: nobody can say how
    bright they are meant to be. So are animations and files of several pages.
    """

    kind: ClassVar[str] = "vision"
    noun: ClassVar[str] = "picture"
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {
            ".png",
            ".jpg",
            ".jpeg",
            ".jpe",
            ".jfif",
            ".gif",
            ".webp",
            ".bmp",
            ".tif",
            ".tiff",
        }
        | {".ppm", ".pgm", ".pbm", ".pnm"}
    )

    @classmethod
    def claims(cls, head: bytes) -> bool:
        return head.startswith(STARTS) or (
            head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        )

    @classmethod
    def items(
        cls, content: bytes, config: ExtractConfig, **file: Any
    ) -> Sequence[_Picture]:  # noqa: ARG003
        seen = _decoded(content, Item(**file).where, config.grey_bits)
        about = {"bits": config.grey_bits, **seen._asdict()}
        pixels_HW3 = about.pop("pixels")
        blank = bool((pixels_HW3 == pixels_HW3[:1, :1]).all())
        return [_Picture(**file, **about, blank=blank)]

    def doubts(self) -> Iterator[str]:
        """Lines where pictures of the split are blank, or all of them of much the same brightness.

        Raises:
            DataError: of 16 bits so few differ that not many levels of brightness would be left,
                and nobody says that this is meant.
        """
        # of colours Pillow gives the upper 8 bits alone, whatever is said
        deep = [one for one in self.inputs if one.depth == 16]
        guessed = any(
            one.bits is None or not (one.grey or one.bits == 16) for one in deep
        )
        darkest, peak = _range_of(deep)
        if guessed and peak - darkest < FEWEST_LEVELS << 8:
            bits = next((n for n in GREY_BITS if peak < 2**n), 16)
            remedy = "make files of 8 bits of them"
            if bits < 16 and all(one.grey for one in deep):
                remedy = f"--set grey-bits={bits} if they are of {bits} bits"
            raise DataError(
                "the pictures of 16 bits are all of much the same brightness: of their upper 8 "
                f"bits {(peak >> 8) - (darkest >> 8) + 1} values are left",
                expected=f"a range of {FEWEST_LEVELS << 8:,} values of 65,536 at least",
                found=f"{darkest:,} to {peak:,} in {len(deep):,} pictures",
                where=self.origin,
                hint=f"{remedy}; --set grey-bits=16 if that is meant",
            )
        shallow = [one for one in self.inputs if one.depth < 16]
        darkest, peak = _range_of(shallow)
        if shallow and peak - darkest < FEWEST_LEVELS:
            yield (
                f"the pictures of {self.origin} are all of much the same brightness, {darkest} to "
                f"{peak} of 255: values that are none, such as numbers of classes, have to be "
                "spread over 0 to 255 before"
            )
        yield from self.few_alike(
            sum(one.blank for one in self.inputs), "show one colour alone"
        )

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """Pillow, and its decoders where there is more than one right way to make pixels."""
        features = library("PIL.features", cls.kind)
        jpeg = "libjpeg_turbo" if features.version("libjpeg_turbo") else "jpg"
        found = {name: features.version(name) for name in (jpeg, "webp")}
        some = {name: str(version) for name, version in found.items() if version}
        return {"gaam": RULES, "pillow": str(features.version("pil"))} | some


def _range_of(pictures: Sequence[_Picture]) -> tuple[int, int]:
    """Their darkest and brightest value; all there could be, where there are no pictures."""
    darkest = min((one.darkest for one in pictures), default=0)
    return darkest, max((one.peak for one in pictures), default=2**16)


def _decoded(content: bytes, where: str, grey_bits: int | None) -> _Seen:
    """The pixels of a picture file, and how bright it is."""
    module, operations = (
        library("PIL.Image", "vision"),
        library("PIL.ImageOps", "vision"),
    )
    try:
        with module.open(io.BytesIO(content), formats=FORMATS) as image:
            pages = getattr(image, "n_frames", 1)
            if (
                pages > 1 and image.format != "MPO"
            ):  # a JPEG with a preview: the first is meant
                raise ValueError(f"{pages} pictures in one file; one is expected")
            # Pillow takes the upper 8 bits of colours of 16, and says so only here
            deep = any(";16" in str(tile[3]) for tile in image.tile)
            image.load()
            upright = operations.exif_transpose(image)
            grey = (
                upright.mode.startswith("I;16")
                and upright.info.get("transparency") is None
            )
            if grey:
                grey_HW = np.array(upright)
                pixels_HW3 = _rgb_of_grey(grey_HW, grey_bits or 16)
                darkest, peak = int(grey_HW.min()), int(grey_HW.max())
                return _Seen(pixels_HW3, darkest, peak, depth=16, grey=True)
            pixels_HW3, darkest, peak = _rgb(upright)
            if deep:
                darkest, peak = darkest << 8, (peak << 8) + 255
            return _Seen(pixels_HW3, darkest, peak, depth=16 if deep else 8, grey=False)
    except Exception as error:  # whatever a damaged file leads a decoder to
        raise DataError(
            "a picture cannot be decoded",
            expected="a whole picture of 8 bits, or of 16 bits of grey",
            found=str(error) or type(error).__name__,
            where=where,
            hint="get the file again or convert it to PNG, or remove its row",
        ) from error


def _rgb_of_grey(grey_HW: NDArray[np.uint16], bits: int) -> NDArray[np.uint8]:
    """The upper 8 of so many bits, in all three colours: (height, width, 3)."""
    if (peak := int(grey_HW.max())) >> bits:
        raise ValueError(
            f"a value of {peak:,}, which is more than the {bits} bits of grey-bits"
        )
    grey_HW1 = (grey_HW >> (bits - 8)).astype(np.uint8)[..., None]
    return np.repeat(grey_HW1, 3, axis=2)


def _rgb(image: Any) -> tuple[NDArray[np.uint8], int, int]:
    """What is seen of a loaded picture, on white: (height, width, 3); its darkest and brightest."""
    hidden = image.info.get("transparency")
    if image.mode not in MODES:
        raise ValueError(
            f"values of Pillow's mode {image.mode}, whose brightness nobody knows"
        )
    if hidden is None and image.mode not in ("LA", "La", "PA", "RGBA", "RGBa"):
        seen_HW3 = np.array(image.convert("RGB"))
        return np.ascontiguousarray(seen_HW3), int(seen_HW3.min()), int(seen_HW3.max())
    rgba_HWC = np.array(image.convert("RGBA"))
    rgb_HWC, alpha_HW1 = (
        rgba_HWC[..., :3].astype(np.uint16),
        rgba_HWC[..., 3:].astype(np.uint16),
    )
    on_white_HWC = rgb_HWC * alpha_HW1 + 255 * (255 - alpha_HW1)
    seen_HW3 = ((on_white_HWC + np.uint16(127)) // np.uint16(255)).astype(np.uint8)
    return seen_HW3, int(rgb_HWC.min()), int(rgb_HWC.max())
