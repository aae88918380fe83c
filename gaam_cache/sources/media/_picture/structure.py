"""Whether a picture file is whole, by its structure: decoders do not ask, or ask too late.

Pillow leaves the checksums of PNG's pixels alone, takes the first of a GIF's pictures where the
others are cut off, and makes room for what a WebP header says before anybody can look at it.
"""

from __future__ import annotations

import re
import zlib

from gaam_cache.sources.media._flaws import Flaw, truncated

MOST_PIXELS = 2**30 // 12
"""Pillow's own bound: from there on it warns. A quarter of a gigabyte as RGB, 9,459 x 9,459."""
_BEHIND_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""The next marker of a JPEG: what is coded has a zero behind 255, or a number of a restart."""


def check_size(width: int, height: int) -> None:
    """Refuse what would not fit into memory, before anything is decoded.

    Raises:
        Flaw: no pixels, or too many.
    """
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise Flaw(
            "a picture has no pixels" if width * height < 1 else "a picture is too large",
            f"1 to {MOST_PIXELS:,} pixels",
            f"{width:,} x {height:,}, as it says itself",
            hint="make it smaller, or remove its row",
        )


def animated(count: int, kind: str) -> Flaw:
    """The flaw of a file of several pictures."""
    return Flaw(
        "a file holds several pictures",
        expected="one",
        found=f"{count:,} in a {kind} file",
        hint="keep the one that is meant, each in a file of its own",
    )


def png(content: bytes) -> None:
    """Every chunk is what its checksum says, to the last; one picture."""
    position, name = 8, b""
    while name != b"IEND":
        size = int.from_bytes(content[position : position + 4], "big")
        name = content[position + 4 : position + 8]
        end = position + 12 + size
        if end > len(content):
            raise truncated("the PNG file", max(end, len(content) + 1), len(content))
        stored = int.from_bytes(content[end - 4 : end], "big")
        if zlib.crc32(memoryview(content)[position + 4 : end - 4]) != stored:
            raise Flaw(
                "the PNG file is damaged",
                "chunks that are what their checksums say",
                f"another sum over {name!r} at byte {position:,}",
            )
        if name == b"IHDR":
            check_size(*(_big(content, position + at) for at in (8, 12)))
        elif name == b"acTL" and _big(content, position + 8) > 1:
            raise animated(_big(content, position + 8), "PNG")
        position = end


def jpeg(content: bytes) -> None:
    """Every segment is there, to the end of the image; of several the first is meant."""
    position = 2
    while True:
        if position + 4 > len(content) and content[position : position + 2] != b"\xff\xd9":
            raise truncated("the JPEG file", position + 4, len(content))
        marker = content[position + 1]
        if content[position] != 0xFF:
            raise Flaw("the JPEG file is damaged", "a marker", f"other bytes at {position:,}")
        if marker == 0xFF:  # fills up
            position += 1
        elif marker == 0xD9:
            return
        elif 0xD0 <= marker <= 0xD8 or marker == 1:
            position += 2
        else:
            size = int.from_bytes(content[position + 2 : position + 4], "big")
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = (
                    int.from_bytes(content[position + at : position + at + 2], "big")
                    for at in (5, 7)
                )
                check_size(width, height)
            position += 2 + size
            if marker == 0xDA:
                found = _BEHIND_SCAN.search(content, position)
                position = found.start() if found else len(content)


def gif(content: bytes) -> None:
    """Every block is there, to the trailer; one picture."""
    check_size(*_gif_size(content, 6))
    position, count = 13 + _palette(content, 10), 0
    while (kind := content[position : position + 1]) != b";":
        if kind == b"!":
            position += 2
        elif kind == b",":
            left, top = _gif_size(content, position + 1)
            width, height = _gif_size(content, position + 5)
            check_size(left + width, top + height)
            position, count = position + 11 + _palette(content, position + 9), count + 1
        elif kind:
            raise Flaw("the GIF file is damaged", "a block", f"other bytes at {position:,}")
        while (size := content[position] if position < len(content) else -1) > 0:
            position += 1 + size
        if size < 0:
            raise truncated("the GIF file", position + 1, len(content))
        position += 1
    if count != 1:
        raise animated(count, "GIF")


def webp(content: bytes) -> None:
    """As long as it says, and one picture."""
    promised = int.from_bytes(content[4:8], "little") + 8
    if promised > len(content) or len(content) < 30:
        raise truncated("the WebP file", max(promised, 30), len(content))
    kind = content[12:16]
    if kind == b"VP8X":
        check_size(*(1 + int.from_bytes(content[at : at + 3], "little") for at in (24, 27)))
        if content[20] & 2:
            raise animated(content.count(b"ANMF"), "WebP")
    elif kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        check_size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    elif kind == b"VP8 ":
        width, height = _gif_size(content, 26)
        check_size(width & 0x3FFF, height & 0x3FFF)


def _gif_size(content: bytes, at: int) -> tuple[int, int]:
    """Two numbers of two bytes each."""
    return int.from_bytes(content[at : at + 2], "little"), int.from_bytes(
        content[at + 2 : at + 4], "little"
    )


def _palette(content: bytes, at: int) -> int:
    """Bytes of the palette that the flags there tell of."""
    flags = content[at] if at < len(content) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _big(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "big")
