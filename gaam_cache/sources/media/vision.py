"""Pictures: what Pillow decodes of a few formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._decode_picture import format_of, pillow, size_of
from gaam_cache.sources.media._picture import Picture, Pictures


class Vision(Medium):
    """PNG, JPEG, GIF, WebP, BMP, TIFF, PBM, PGM and PPM, one picture a file.

    Not everything that is wrong can be seen: bits that were flipped within the data of a JPEG, GIF,
    BMP, TIFF, PPM or lossy WebP make other pixels, for these formats have no checksum (PNG has).
    """

    rows: ClassVar[type[Media]] = Pictures
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"}
        | {".pbm", ".pgm", ".ppm", ".pnm"}
    )

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """By the numbers that formats begin with."""
        return format_of(head) is not None

    @classmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:  # noqa: ARG003
        """One row; raises as ``decoded``."""
        width, height = size_of(blob.read(), blob.where)
        return [{"width": width, "height": height}]

    @classmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> Picture:
        """The picture."""
        return Picture(blob, facts["width"], facts["height"])

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
        return {"pillow": str(features.version("pil"))} | {
            name: str(version) for name, version in found.items() if version
        }
