"""WAV, AIFF, AU and CAF: headers, and samples as they are."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gaam_cache.sources.media._sounds._promise import Promise, damaged, endless, not_read

WAV_CODES = {1: "PCM", 3: "floating point", 6: "A-law", 7: "mu-law"}
"""Format tags. 0xFFFE is followed by one of these."""
AIFF_CODES = frozenset([b"NONE", b"twos", b"sowt", b"raw ", b"in24", b"in32", b"42ni", b"23ni"])
"""Integers as they are."""
AIFF_BYTES = {
    **dict.fromkeys([b"ulaw", b"ULAW", b"alaw", b"ALAW"], 1),
    **dict.fromkeys([b"fl32", b"FL32"], 4),
    **dict.fromkeys([b"fl64", b"FL64"], 8),
}
"""Of a sample of other codes."""
AU_BYTES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 8, 27: 1}
"""Of a sample, by encoding."""


def _chunks(content: bytes, at: int, header: str, even: bool) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and size of every chunk; what follows the last one may be anything."""
    size_of_header = struct.calcsize(header)
    while at + size_of_header <= len(content):
        name, size = struct.unpack_from(header, content, at)
        at += size_of_header
        yield name, at, size
        at += size + (size & 1 if even else 0)


def _need(content: bytes, at: int, size: int, what: str) -> bytes:
    if at + size > len(content):
        raise damaged(
            f"the file ends after {max(0, len(content) - at):,} of them",
            f"{size:,} bytes of {what}",
        )
    return content[at : at + size]


def _frames(size: int, width: int, form: str) -> int:
    if size % width:
        raise damaged(
            f"{size:,} bytes of samples in {form}", f"a multiple of {width}, which is a frame"
        )
    return size // width


def wav(content: bytes) -> Promise:
    """RIFF (also of more than 4 GiB: RF64; and big-endian: RIFX)."""
    order = ">" if content[:4] == b"RIFX" else "<"
    large: int | None = None
    shape: tuple[int, int, int] | None = None
    found: tuple[int, int] | None = None
    for name, at, size in _chunks(content, 12, order + "4sI", even=True):
        if name == b"ds64":
            large = struct.unpack("<Q", _need(content, at, 28, "the sizes")[8:16])[0]
        elif name == b"fmt " and shape is None:
            shape = _wav_format(_need(content, at, size, "the format"), order)
        elif name == b"data":
            if found is not None:
                raise damaged("a second chunk of samples", "one")
            if size == 0xFFFFFFFF and large is not None:
                size = large
            elif size == 0xFFFFFFFF or (size == 0 and at < len(content)):
                raise endless("WAV")
            _need(content, at, size, "samples")
            found = at, size
            break
    if shape is None or found is None:
        raise damaged("the file ends before them", "a header of WAV, and samples")
    rate, channels, width = shape
    return Promise("WAV", rate, channels, _frames(found[1], width, "WAV"))


def _wav_format(chunk: bytes, order: str) -> tuple[int, int, int]:
    """Rate, channels and bytes of a frame."""
    if len(chunk) < 16:
        raise damaged(f"a format of {len(chunk)} bytes", "16 or more")
    tag, channels, rate, _, width, bits = struct.unpack(order + "HHIIHH", chunk[:16])
    if tag == 0xFFFE and len(chunk) >= 26:
        tag = struct.unpack(order + "H", chunk[24:26])[0]
    if tag not in WAV_CODES:
        raise not_read(f"WAV with format tag {tag:#06x}")
    if channels == 0 or width != channels * ((bits + 7) // 8):
        raise damaged(
            f"{width} bytes a frame, {channels} channels and {bits} bits a sample",
            "numbers that fit",
        )
    return rate, channels, width


def aiff(content: bytes) -> Promise:
    """FORM, AIFF or AIFC."""
    shape: tuple[int, int, int, int] | None = None
    size_found: int | None = None
    for name, at, size in _chunks(content, 12, ">4sI", even=True):
        if name == b"COMM":
            shape = _aiff_format(_need(content, at, size, "the format"), content[8:12])
        elif name == b"SSND":
            if size_found is not None:
                raise damaged("a second chunk of samples", "one")
            offset = struct.unpack(">I", _need(content, at, 8, "samples")[:4])[0]
            _need(content, at, size, "samples")
            size_found = size - 8 - offset
    if shape is None or size_found is None:
        raise damaged("the file ends before them", "a header of AIFF, and samples")
    rate, channels, frames, width = shape
    if size_found != frames * width:
        raise damaged(
            f"{size_found:,} bytes of samples", f"{frames:,} frames of {width} bytes each"
        )
    return Promise("AIFF", rate, channels, frames)


def _aiff_format(chunk: bytes, form: bytes) -> tuple[int, int, int, int]:
    """Rate, channels, frames and bytes of a frame."""
    if len(chunk) < 18:
        raise damaged(f"a format of {len(chunk)} bytes", "18 or more")
    channels, frames, bits, exponent, mantissa = struct.unpack(">HIHHQ", chunk[:18])
    shift = 16383 + 63 - exponent
    rate = mantissa >> shift if 0 <= shift < 64 else 0
    width = (bits + 7) // 8
    if form == b"AIFC":
        code = chunk[18:22]
        width = AIFF_BYTES.get(code, width)
        if code not in AIFF_BYTES and code not in AIFF_CODES:
            raise not_read(f"AIFF-C with code {code!r}")
    return rate, channels, frames, channels * width


def au(content: bytes) -> Promise:
    """Sun's, big-endian."""
    fields = struct.unpack(">6I", _need(content, 0, 24, "the header of AU"))
    _, offset, size, code, rate, channels = fields
    if code not in AU_BYTES:
        raise not_read(f"AU with encoding {code}")
    if size == 0xFFFFFFFF:
        raise endless("AU")
    _need(content, offset, size, "samples")
    width = AU_BYTES[code] * max(1, channels)
    return Promise("AU", rate, channels, _frames(size, width, "AU"))


def caf(content: bytes) -> Promise:
    """Apple's Core Audio Format."""
    shape: tuple[int, int, int] | None = None
    for name, at, size in _chunks(content, 8, ">4sq", even=False):
        if name == b"desc":
            chunk = _need(content, at, 32, "the format")
            rate, code, _, width, per_packet, channels, _ = struct.unpack(">d4sIIIII", chunk)
            if code not in (b"lpcm", b"ulaw", b"alaw"):
                raise not_read(f"CAF with code {code!r}")
            if per_packet != 1 or width == 0 or not 0 <= rate < 2**32:
                raise damaged("a format of packets that samples as they are do not have")
            shape = int(rate), channels, width
        elif name == b"data":
            if size == -1:
                raise endless("CAF")
            if size < 4 or shape is None:
                raise damaged("samples without a format")
            _need(content, at, size, "samples")
            rate, channels, width = shape
            return Promise("CAF", rate, channels, _frames(size - 4, width, "CAF"))
        elif size < 0:
            raise damaged("a chunk of a negative size")
    raise damaged("the file ends before them", "a header of CAF, and samples")
