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


def _chunks(content: bytes, at: int, header: str, form: str) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and size of every chunk, up to the end of the file.

    If it said less than there is of its samples, the rest of them would be no chunk.
    """
    size_of_header, large = struct.calcsize(header), None
    while at < len(content):
        name, size = struct.unpack(header, _need(content, at, size_of_header, "a chunk's header"))
        at += size_of_header
        if name == b"ds64" and form == "WAV":
            large = struct.unpack("<Q", _need(content, at, 16, "sizes")[8:])[0]
        if name == b"data" and size in (-1, 0xFFFFFFFF):
            if large is None:
                raise endless(form)
            size = large
        if name == b"data" and size == 0 and at < len(content):
            raise endless(form)
        if size < 0:
            raise damaged(f"chunk {name!r} of {size:,} bytes")
        _need(content, at, size, f"chunk {name!r}")
        yield name, at, size
        at += size + (size & 1 if form != "CAF" else 0)


def _need(content: bytes, at: int, size: int, what: str) -> bytes:
    if at + size > len(content):
        raise damaged(
            f"the file ends after {len(content) - at:,} of them",
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
    shape: tuple[int, int, int] | None = None
    samples: int | None = None
    for name, at, size in _chunks(content, 12, order + "4sI", "WAV"):
        if name == b"fmt ":
            if shape is not None or samples is not None:
                raise damaged("a second format, or one after the samples", "one, before them")
            shape = _wav_format(content[at : at + size], order)
        elif name == b"data":
            if samples is not None:
                raise damaged("a second chunk of samples", "one")
            samples = size
    if shape is None or samples is None:
        raise damaged("the file ends before them", "a header of WAV, and samples")
    rate, channels, width = shape
    return Promise("WAV", rate, channels, _frames(samples, width, "WAV"))


def _wav_format(chunk: bytes, order: str) -> tuple[int, int, int]:
    """Rate, channels and bytes of a frame."""
    if len(chunk) < 16:
        raise damaged(f"a format of {len(chunk)} bytes", "16 or more")
    tag, channels, rate, speed, width, bits = struct.unpack(order + "HHIIHH", chunk[:16])
    if tag == 0xFFFE and len(chunk) >= 28:
        tag = struct.unpack(order + "I", chunk[24:28])[0]
    if tag not in WAV_CODES or (tag == 1 and bits > 32):
        raise not_read(f"WAV with format tag {tag:#06x} and {bits} bits a sample")
    if width == 0 or width != channels * ((bits + 7) // 8) or speed != rate * width:
        raise damaged(
            f"{speed:,} bytes a second at {rate:,} Hz, {width} bytes a frame, {channels} channels "
            f"and {bits} bits a sample",
            "numbers that fit",
        )
    return rate, channels, width


def aiff(content: bytes) -> Promise:
    """FORM, AIFF or AIFC."""
    shape: tuple[int, int, int, int] | None = None
    samples: int | None = None
    for name, at, size in _chunks(content, 12, ">4sI", "AIFF"):
        if name == b"COMM":
            shape = _aiff_format(content[at : at + size], content[8:12])
        elif name == b"SSND":
            if samples is not None:
                raise damaged("a second chunk of samples", "one")
            offset = int.from_bytes(content[at : at + 4], "big")
            samples = size - 8 - offset
    if shape is None or samples is None:
        raise damaged("the file ends before them", "a header of AIFF, and samples")
    rate, channels, frames, width = shape
    if samples != frames * width:
        raise damaged(f"{samples:,} bytes of samples", f"{frames:,} frames of {width} bytes each")
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
    if offset + size != len(content):
        raise damaged(f"{len(content) - offset:,} of them", f"{size:,} bytes of samples")
    width = AU_BYTES[code] * max(1, channels)
    return Promise("AU", rate, channels, _frames(size, width, "AU"))


def caf(content: bytes) -> Promise:
    """Apple's Core Audio Format."""
    shape: tuple[int, int, int] | None = None
    samples: int | None = None
    for name, at, size in _chunks(content, 8, ">4sq", "CAF"):
        if name == b"desc":
            shape = _caf_format(_need(content, at, 32, "the format"))
        elif name == b"data":
            if samples is not None or size < 4:
                raise damaged("a second chunk of samples, or none", "one")
            samples = size - 4  # a number of edits precedes them
    if shape is None or samples is None:
        raise damaged("the file ends before them", "a header of CAF, and samples")
    rate, channels, width = shape
    return Promise("CAF", rate, channels, _frames(samples, width, "CAF"))


def _caf_format(chunk: bytes) -> tuple[int, int, int]:
    """Rate, channels and bytes of a frame."""
    rate, code, _, width, per_packet, channels, bits = struct.unpack(">d4sIIIII", chunk)
    if code not in (b"lpcm", b"ulaw", b"alaw"):
        raise not_read(f"CAF with code {code!r}")
    if per_packet != 1 or width == 0 or width != channels * ((bits + 7) // 8) or not rate < 2**32:
        raise damaged(
            f"{width} bytes a packet of {per_packet} frames, {channels} channels, {bits} bits a "
            f"sample, {rate:g} Hz",
            "numbers that fit",
        )
    return max(0, int(rate)), channels, width
