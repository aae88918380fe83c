"""Pictures in files: PNG, JPEG, GIF, WebP, BMP, TIFF, PPM, by Pillow alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._flaws import flaws_of
from gaam_cache.sources.media._picture.decoding import decode, format_of, pillow
from gaam_cache.sources.media._picture.rows import Picture, Pictures
from gaam_cache.sources.media._whole import whole

RULES = "upright, on white, the upper 8 of 16 bits"
"""What we make of what Pillow reads; to be changed with it, for it decides numbers."""


class Vision(Medium):
    """Pictures.

    A picture is what is seen of it: 8 bits of red, green and blue, turned upright as its EXIF
    says, and put on white where it is transparent. (``convert("RGB")``, as others do it, shows
    the colours that a transparent pixel happens to hold, mostly black.) Of 16 bits the upper 8
    are taken. CMYK is converted as Pillow does, and no colour profile is applied to anything.
    Fractions, whole numbers of 32 bits and LAB are refused: nobody can say how bright they are
    meant to be. So are animations and files of several pages: which one is meant is not ours to
    choose; of a JPEG with others behind it (a preview, a depth map) the first is the picture.

    What nobody can see: a changed byte among the pixels of JPEG, BMP and PPM, and most of them in
    WebP, GIF and TIFF, or in the sizes that their headers give; so too a JPEG whose end is missing
    and that somebody closed all the same.
    """

    rows: ClassVar[type[Media]] = Pictures
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
        | {".ppm", ".pgm", ".pbm", ".pnm"}
    )

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """Whether it has the signature of one of the formats."""
        return format_of(head) is not None

    @classmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:  # noqa: ARG003 one row
        """One row."""
        with flaws_of(blob.where):
            height, width, _ = decode(whole(blob)).shape
        return [{"width": width, "height": height}]

    @classmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> Picture:
        """The picture."""
        return Picture(blob=blob, **facts)

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Of what makes pixels of bytes, where there is more than one right way to do it.

        Raises:
            ConfigError: it is not installed.
        """
        pillow()
        from PIL import features

        found = {name: features.version(name) for name in ("libjpeg_turbo", "jpg", "webp")}
        if found["libjpeg_turbo"]:
            del found["jpg"]  # the interface that it stands in for
        return {"gaam": RULES, "pillow": str(features.version("pil"))} | {
            name: str(version) for name, version in found.items() if version
        }
