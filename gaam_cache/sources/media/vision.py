"""Pictures in files that Pillow reads: PNG, JPEG, GIF, WebP, BMP, TIFF, PPM.

Shapes: H rows and W columns of pixels, C or 3 channels.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media.base import Item, Media, import_decoder

PIXEL_RULES = "upright, on white, the upper 8 of 16 bits"
"""What gaam does to the pixels of Pillow. It decides numbers and is part of the
fingerprint, so it must change with the code."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "MPO")
"""Formats that Pillow may try. Some others would start another program."""
# fmt: off
PPM_STARTS = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")
STARTS = (
    b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+",
    *PPM_STARTS,
)
SUFFIXES = frozenset({
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
MODES = frozenset({
    "1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr",
})
"""Pillow's modes of 8 bits or fewer with a known look."""
# fmt: on
ALPHA_MODES = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
PHOTOMETRY = 262
"""The tag of TIFF that says which value is white."""
ZERO_IS_WHITE = 0
BITS_PER_SAMPLE = 258
"""The tag of TIFF for the bits of each value of a pixel."""
COMPRESSION = 259
"""The tag of TIFF for the way in which it is compressed."""
UNCOMPRESSED = 1
FILL_ORDER = 266
"""The tag of TIFF that says which bit of a byte comes first."""
HIGHEST_BIT_FIRST = 1
PLANES = 284
"""The tag of TIFF that says whether each colour is stored by itself."""
SEPARATE_PLANES = 2
PHOTOMETRY_OF_PLANES = (1, 2, 3, 5)
"""Looks that Pillow knows in separate planes: grey, RGB, palette and CMYK."""
SAMPLE_FORMAT = 339
"""The tag of TIFF for the type of each value of a pixel."""
UNSIGNED = 1
WHITE_BY_RAW_MODE = {"L;2": 3, "L;4": 15}
"""The largest value of grey of 2 and of 4 bits in a PNG, by Pillow's name of them."""
GREY_BITS = (10, 12, 14)
"""Bits that cameras and scanners use of the 16 bits that they write."""
FEWEST_LEVELS = 64
"""Levels of brightness, of 256. If all pictures of a split together span fewer, their
values may be no brightness."""

# set once for all: a filter that a thread sets for a moment holds for all threads
warnings.filterwarnings("ignore", module=r"PIL\.")


class _DecodedPicture(NamedTuple):
    """The pixels of a picture file, and the range of the values in the file."""

    pixels_HW3: NDArray[np.uint8]  # RGB, upright, on white
    darkest: int  # smallest value in the file
    brightest: int  # largest value in the file
    bit_depth: int  # bits of a value in the file: 16, or 8 for 8 and fewer
    is_grey_of_16_bits: bool  # whether it has 16 bits and no colours


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture(Item):
    """A picture in a file, and its brightness."""

    used_bits: (
        int | None
    )  # used bits of a 16-bit grey value; None if the user states none
    darkest: int  # smallest value in the file
    brightest: int  # largest value in the file
    bit_depth: int  # bits of a value in the file: 16, or 8 for 8 and fewer
    is_grey_of_16_bits: bool  # whether it has 16 bits and no colours
    is_blank: bool  # whether all of its pixels look the same

    @property
    def identity(self) -> bytes:
        """The digest of the file; and the used bits of a grey value, if not all 16."""
        digest = bytes.fromhex(self.sha256)
        if self.is_grey_of_16_bits and self.used_bits not in (None, 16):
            return digest + f"{self.used_bits} bits".encode()
        return digest

    @property
    def has_stated_range(self) -> bool:
        """Whether the user has stated how many of the 16 bits of a value are used."""
        if self.is_grey_of_16_bits:
            return self.used_bits is not None
        # Pillow reduces 16 bits of a colour to the upper 8. That is right for 16 used
        # bits. No other statement has an effect on colours.
        return self.used_bits == 16

    def pixels(self) -> NDArray[np.uint8]:
        """Decode the picture as people see it: (height, width, 3), RGB."""
        return _decode(self.content(), self.where, self.used_bits).pixels_HW3


class Vision(Media):
    """Pictures as people see them, in 8 bits of red, green and blue.

    They are turned upright as EXIF says. Transparent ones are laid on white, because
    ``convert("RGB")`` shows the hidden colour of a transparent pixel, mostly black. Of
    16 bits the upper 8 are taken, with ``grey_bits`` the upper 8 of those. Pillow
    converts CMYK. No colour profile is applied.

    Fractions, whole numbers of 32 bits and LAB are refused, because their brightness is
    not defined. Animations and files of several pages are refused too.
    """

    kind: ClassVar[str] = "vision"
    noun: ClassVar[str] = "picture"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file begins as a picture of a format in ``FORMATS`` does."""
        is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        return is_webp or head.startswith(STARTS)

    @classmethod
    def items(
        cls, content: bytes, config: ExtractConfig, file: Item
    ) -> Sequence[_Picture]:
        """Decode a file, and return its picture as the only input.

        The item has figures of the picture, which serve for warnings, but no pixels:
        these are decoded again when they are needed.
        """
        picture = _decode(content, file.where, config.grey_bits)
        first_pixel = picture.pixels_HW3[:1, :1]
        item = _Picture(
            name=file.name,
            path=file.path,
            offset=file.offset,
            size=file.size,
            sha256=file.sha256,
            used_bits=config.grey_bits,
            darkest=picture.darkest,
            brightest=picture.brightest,
            bit_depth=picture.bit_depth,
            is_grey_of_16_bits=picture.is_grey_of_16_bits,
            is_blank=bool((picture.pixels_HW3 == first_pixel).all()),
        )
        return [item]

    def doubts(self) -> Iterator[str]:
        """Yield warnings if many pictures are blank, or all are of the same brightness.

        Pictures of 8 bits and of 16 bits are judged by themselves.

        Raises:
            DataError: the values of 16 bits differ so little that few levels of
                brightness would be left, and the user has not confirmed it.
        """
        self._check_range_of_16_bits()
        of_8_bits = [picture for picture in self.inputs if picture.bit_depth < 16]
        darkest, brightest = _range_of(of_8_bits)
        if of_8_bits and brightest - darkest < FEWEST_LEVELS:
            yield (
                f"the pictures of {self.origin} are all of much the same brightness, "
                f"{darkest} to {brightest} of 255: values that are no brightness, such "
                "as numbers of classes, have to be spread over 0 to 255 first"
            )
        num_blank = sum(picture.is_blank for picture in self.inputs)
        yield from self.doubt_if_many(num_blank, "show a single colour")

    def _check_range_of_16_bits(self) -> None:
        """Refuse pictures of 16 bits whose upper 8 bits hardly differ.

        Cameras may use only the lower 10 to 14 of 16 bits. Such pictures would be
        almost black, unless the user states how many bits are used.
        """
        of_16_bits = [picture for picture in self.inputs if picture.bit_depth == 16]
        # the user knows what the pictures hold; there may also be no such picture
        if all(picture.has_stated_range for picture in of_16_bits):
            return
        darkest, brightest = _range_of(of_16_bits)
        # a level of 8 bits is 256 levels of 16 bits
        if brightest - darkest >= FEWEST_LEVELS << 8:
            return

        # the lowest number of bits that holds the brightest value is the likely one
        bits = next((bits for bits in GREY_BITS if brightest < 2**bits), 16)
        remedy = "convert them to files of 8 bits"
        if bits < 16 and all(picture.is_grey_of_16_bits for picture in of_16_bits):
            remedy = f"--set grey-bits={bits} if they are of {bits} bits"
        levels = (brightest >> 8) - (darkest >> 8) + 1
        raise DataError(
            "the pictures of 16 bits are all of much the same brightness: of their "
            f"upper 8 bits {levels} values are left",
            expected=f"a range of at least {FEWEST_LEVELS << 8:,} values of 65,536",
            found=f"{darkest:,} to {brightest:,} in {len(of_16_bits):,} pictures",
            where=self.origin,
            hint=f"{remedy}; --set grey-bits=16 if that is meant",
        )

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """Versions of all code that decides the pixels, for the fingerprint.

        Of Pillow's decoders, only those for JPEG and WebP count: two correct decoders
        of these formats may differ in their pixels.
        """
        features = import_decoder("PIL.features", cls.kind)
        # Pillow decodes JPEG by libjpeg-turbo, or by the older libjpeg, its "jpg".
        jpeg = "libjpeg_turbo" if features.version("libjpeg_turbo") else "jpg"
        versions = {"gaam": PIXEL_RULES, "pillow": str(features.version("pil"))}
        for name in (jpeg, "webp"):
            version = features.version(name)
            if version:
                versions[name] = str(version)
        return versions


def _range_of(pictures: Sequence[_Picture]) -> tuple[int, int]:
    """The darkest and the brightest value of all pictures.

    Without pictures it is the full range of 16 bits: callers warn of a small range.
    """
    darkest = min((picture.darkest for picture in pictures), default=0)
    brightest = max((picture.brightest for picture in pictures), default=2**16 - 1)
    return darkest, brightest


def _decode(content: bytes, where: str, grey_bits: int | None) -> _DecodedPicture:
    """Decode a picture file.

    Args:
        content: all bytes of the file.
        where: where the file is, for messages.
        grey_bits: used bits of 16-bit grey values; None for all 16.

    Raises:
        DataError: the file is damaged, or gaam refuses such pictures.
    """
    # A missing package is no fault of the picture, so the packages are imported outside
    # of the handler.
    pil_image = import_decoder("PIL.Image", "vision")
    pil_operations = import_decoder("PIL.ImageOps", "vision")
    try:
        with pil_image.open(io.BytesIO(content), formats=FORMATS) as image:
            _refuse_several_pictures(image, content)
            return _decode_image(image, pil_operations, grey_bits)
    # a damaged file may lead a decoder to any exception
    except Exception as error:
        raise DataError(
            "a picture cannot be decoded",
            expected="a whole picture of 8 bits, or of 16 bits of grey",
            found=str(error) or type(error).__name__,
            where=where,
            hint="get the file again or convert it to PNG of 8 bits, or remove its row",
        ) from error


def _decode_image(
    image: Any, pil_operations: Any, grey_bits: int | None
) -> _DecodedPicture:
    """Decode an opened picture.

    Args:
        image: the picture, as Pillow opens it.
        pil_operations: the module ``PIL.ImageOps``.
        grey_bits: used bits of 16-bit grey values; None for all 16.

    Raises:
        ValueError: gaam refuses such pictures; the text says why.
    """
    _refuse_misread_tiff(image)

    # Pillow drops the lower 8 of 16 bits of colours. Only the tiles, the parts of the
    # file, tell the type of its values, such as "RGB;16B": it is among the arguments of
    # their decoder, which come last. Loading the pixels empties the list of tiles.
    has_16_bits = any(";16" in str(arguments) for *_, arguments in image.tile)
    _refuse_lost_transparency(image, has_16_bits)
    image.load()
    upright = pil_operations.exif_transpose(image)
    is_opaque = upright.info.get("transparency") is None
    if upright.mode.startswith("I;16") and is_opaque:
        grey_HW = np.array(upright)
        return _DecodedPicture(
            _grey_to_rgb(grey_HW, grey_bits or 16),
            darkest=int(grey_HW.min()),
            brightest=int(grey_HW.max()),
            bit_depth=16,
            is_grey_of_16_bits=True,
        )

    pixels_HW3, darkest, brightest = _convert_to_rgb(upright)
    bit_depth = 8
    if has_16_bits:
        bit_depth = 16
        # Only the upper 8 bits of these colours are known. Their lower bits are all 0
        # in the smallest possible value, and all 1 in the largest.
        darkest = darkest << 8
        brightest = (brightest << 8) + 255
    return _DecodedPicture(
        pixels_HW3, darkest, brightest, bit_depth, is_grey_of_16_bits=False
    )


def _refuse_several_pictures(image: Any, content: bytes) -> None:
    """Refuse an animation, and a file of several pages or pictures.

    Args:
        image: the picture, whose pixels are not loaded yet.
        content: all bytes of the file.

    Raises:
        ValueError: there are several.
    """
    pages = getattr(image, "n_frames", 1)
    # an MPO is a JPEG with a preview: its first picture is the one to decode
    if pages > 1 and image.format != "MPO":
        raise ValueError(f"{pages} pictures in one file; one is expected")
    if image.format == "PPM" and _rest_of_ppm(image, content).startswith(PPM_STARTS):
        raise ValueError("several pictures in one file; one is expected")


def _rest_of_ppm(image: Any, content: bytes) -> bytes:
    """The bytes behind the first picture of a PPM file, where another may begin."""
    [tile] = image.tile
    if tile.codec_name == "ppm_plain":
        # values are text, so that a letter begins a picture, unless it is in a comment
        text = re.sub(rb"#[^\r\n]*", b"", content[tile.offset :])
        _, letter, next_text = text.partition(b"P")
        return letter + next_text

    width, height = image.size
    bytes_per_line = width * len(image.getbands())
    if image.mode == "1":
        bytes_per_line = (width + 7) // 8
    # Pillow keeps the largest value of a pixel only where it is no usual one
    if tile.codec_name == "ppm" and tile.args[-1] > 255:
        bytes_per_line *= 2
    return content[tile.offset + height * bytes_per_line :].lstrip()


def _refuse_misread_tiff(image: Any) -> None:
    """Refuse a TIFF whose values Pillow takes for others.

    Raises:
        ValueError: Pillow would misread it; the text says why.
    """
    tags = getattr(image, "tag_v2", {})
    photometry = tags.get(PHOTOMETRY)
    # Pillow inverts such values of 8 bits, and not of 16 bits
    if image.mode.startswith("I;16") and photometry == ZERO_IS_WHITE:
        raise ValueError("16 bits of grey of which 0 is white")

    # Pillow reads -1 as 255
    if any(value != UNSIGNED for value in tags.get(SAMPLE_FORMAT, ())):
        raise ValueError("values with a sign or fractions, whose brightness is unknown")

    # Pillow reads a plane without compression as bytes of a colour, whatever it holds
    is_uncompressed = tags.get(COMPRESSION, UNCOMPRESSED) == UNCOMPRESSED
    if tags.get(PLANES) == SEPARATE_PLANES and is_uncompressed:
        bits = max(tags.get(BITS_PER_SAMPLE, (1,)))
        fill_order = tags.get(FILL_ORDER, HIGHEST_BIT_FIRST)
        is_known = photometry in PHOTOMETRY_OF_PLANES
        if bits != 8 or not is_known or fill_order != HIGHEST_BIT_FIRST:
            raise ValueError(
                f"separate planes of {bits} bits without compression (TIFF tags: "
                f"PhotometricInterpretation {photometry}, FillOrder {fill_order})"
            )


def _refuse_lost_transparency(image: Any, has_16_bits: bool) -> None:
    """Refuse a PNG whose transparent colour Pillow does not find among its pixels.

    Pillow brings the pixels to 8 bits, and leaves the transparent colour as it is.

    Args:
        image: the picture, whose pixels are not loaded yet.
        has_16_bits: whether a value in the file has 16 bits.

    Raises:
        ValueError: another colour would become transparent, or none.
    """
    transparency = image.info.get("transparency")
    if transparency is None:
        return
    if has_16_bits:
        raise ValueError("a transparent colour of 16 bits; one of 8 bits is expected")
    # black is 0 in every number of bits, and white on white cannot be seen
    for *_, raw_mode in image.tile:
        white = WHITE_BY_RAW_MODE.get(raw_mode)
        if white is not None and 0 < transparency < white:
            raise ValueError(
                f"a transparent grey of fewer than 8 bits, {transparency} of {white}"
            )


def _grey_to_rgb(grey_HW: NDArray[np.uint16], bits: int) -> NDArray[np.uint8]:
    """Turn grey values into red, green and blue of 8 bits: (H, W, 3).

    Of the ``bits`` used bits of a value, the upper 8 are taken. A value with more bits
    is refused by a ``ValueError``: it would wrap around in 8 bits.
    """
    brightest = int(grey_HW.max())
    if brightest >> bits:
        raise ValueError(
            f"a value of {brightest:,}, which is more than the {bits} bits of grey-bits"
        )
    grey_HW1 = (grey_HW >> (bits - 8)).astype(np.uint8)[..., None]
    return np.repeat(grey_HW1, 3, axis=2)


def _convert_to_rgb(image: Any) -> tuple[NDArray[np.uint8], int, int]:
    """Convert a picture to red, green and blue, and lay a transparent one on white.

    Returns:
        The pixels, (H, W, 3); and the smallest and largest value of the colours before
        they were laid on white.

    Raises:
        ValueError: the brightness of the picture's values is not defined.
    """
    if image.mode not in MODES:
        raise ValueError(
            f"values of Pillow's mode {image.mode}, whose brightness is not defined"
        )
    is_opaque = image.info.get("transparency") is None
    if is_opaque and image.mode not in ALPHA_MODES:
        rgb_HW3 = np.array(image.convert("RGB"))
        return np.ascontiguousarray(rgb_HW3), int(rgb_HW3.min()), int(rgb_HW3.max())

    # The blend is (colour * alpha + 255 * (255 - alpha)) / 255. Its products fit into
    # 16 bits, and adding 127 before the division rounds to the nearest value.
    rgba_HWC = np.array(image.convert("RGBA"))
    rgb_HWC = rgba_HWC[..., :3].astype(np.uint16)
    alpha_HW1 = rgba_HWC[..., 3:].astype(np.uint16)
    on_white_HWC = rgb_HWC * alpha_HW1 + 255 * (255 - alpha_HW1)
    pixels_HW3 = ((on_white_HWC + np.uint16(127)) // np.uint16(255)).astype(np.uint8)
    return pixels_HW3, int(rgb_HWC.min()), int(rgb_HWC.max())
