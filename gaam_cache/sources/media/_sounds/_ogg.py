"""OGG: pages, each with a checksum that libsndfile passes over in silence where it is wrong."""

from __future__ import annotations

import struct
import zlib

from gaam_cache.sources.media._sounds._promise import Promise, damaged, not_read

MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Every byte with its bits in the other order: zlib counts them from the other end."""
FIRST, LAST = 2, 4
"""Flags of a page."""
OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
"""Hz that Opus is decoded at: the least that is not below what was recorded."""


def ogg(content: bytes) -> Promise:
    """One stream of Vorbis or Opus: every page, in order, up to the last one."""
    at = number = 0
    serial = granule = -1
    ended = False
    packet = b""
    while at < len(content):
        if len(content) < at + 27 or content[at : at + 5] != b"OggS\0":
            raise damaged(f"at byte {at:,}: no page of OGG", "page after page")
        flags, position, stream, sequence, checksum, segments = struct.unpack_from(
            "<BqIIIB", content, at + 5
        )
        body = at + 27 + segments
        end = body + sum(content[at + 27 : body])
        if len(content) < end or body > end:
            raise damaged(f"the file ends within page {number:,}", "page after page")
        page = content[at : at + 22] + bytes(4) + content[at + 26 : end]
        if _checksum(page) != checksum:
            raise damaged(f"page {number:,} (byte {at:,}) is not what was written", "its checksum")
        if ended or (number == 0) != bool(flags & FIRST) or (number and stream != serial):
            raise not_read("OGG of several streams")
        if sequence != number:
            raise damaged(f"page {sequence:,} follows page {number - 1:,}", f"page {number:,}")
        if number == 0:
            packet = content[body:end]
        serial, at, ended = stream, end, bool(flags & LAST)
        granule = position if position >= 0 else granule
        number += 1
    if not ended:
        raise damaged(f"the last of {number:,} pages is not marked so", "the end of the stream")
    return _promise(packet, granule)


def _checksum(page: bytes) -> int:
    """CRC-32 of 0x04C11DB7 from the highest bit on, from 0 on, and not inverted."""
    mirrored = zlib.crc32(page.translate(MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(MIRRORED), "big")


def _promise(packet: bytes, granule: int) -> Promise:
    if packet[:7] == b"\x01vorbis" and len(packet) >= 30:
        channels, rate = struct.unpack_from("<BI", packet, 11)
        return Promise("OGG Vorbis", rate, channels, granule)
    if packet[:8] == b"OpusHead" and len(packet) >= 19:
        channels, _, recorded = struct.unpack_from("<BHI", packet, 9)
        if recorded == 0:  # libsndfile would make 8 kHz of it, and lose what is above 4
            raise not_read("Opus that does not say at which rate it was recorded")
        rate = next((hz for hz in OPUS_RATES if hz >= recorded), OPUS_RATES[-1])
        return Promise("OGG Opus", rate, channels, None)
    raise not_read(f"OGG that begins with {packet[:8]!r}")
