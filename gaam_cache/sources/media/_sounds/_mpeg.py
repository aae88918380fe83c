"""MP3: frames, one after the other."""

from __future__ import annotations

from typing import NamedTuple

from gaam_cache.sources.media._sounds._promise import Promise, damaged

RATES = (44_100, 48_000, 32_000)
"""Of MPEG 1, in Hz; MPEG 2 has half of them, MPEG 2.5 a quarter."""
KBIT = {
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (2, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""By MPEG 1 or 2, and layer."""
TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3", b"3DI")
"""That may follow the last frame."""
WRITERS = (b"LAME", b"Lavf", b"Lavc")
"""Who end their header with a checksum. It covers how many samples at both ends are no sound."""
LARGEST = 2000
"""Bytes that no frame passes. Where the first frame does not say how many there are, libsndfile
1.2.2 guesses by its size, and ends there without a word: after 27 % of a sound that begins loudly.
So it is told that the file is as long as it could be at most, and reads up to its end."""
CHECKED, ALL = 154, 15
"""Bytes of such a header that precede its checksum, and the flags that say that all are there."""


class Frame(NamedTuple):
    """What the four bytes before a frame say."""

    version: int
    """1 or 2 (also 2.5)."""
    layer: int
    rate: int
    channels: int
    size: int
    """In bytes, with the header."""
    samples: int


def frame_of(head: bytes) -> Frame | None:
    """A header of layer II or III; None where it is none.

    Not of layer I: so begin texts in UTF-16 too. Nor of a bit rate that is not said.
    """
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    mpeg, layer = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3)
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    if mpeg == 1 or layer not in (2, 3) or bitrate in (0, 15) or rate == 3:
        return None
    version = 1 if mpeg == 3 else 2
    hz = RATES[rate] // (1, 2, 4)[0 if mpeg == 3 else 1 if mpeg == 2 else 2]
    samples = 576 if version == 2 and layer == 3 else 1152
    bits = KBIT[version, layer][bitrate - 1] * 1000 * samples // 8
    size = bits // hz + (head[2] >> 1 & 1)
    return Frame(version, layer, hz, 1 if head[3] >> 6 == 3 else 2, size, samples)


def mpeg(content: bytes, begin: int = 0) -> Promise:
    """Every frame, up to the last one, or to tags that follow it.

    Args:
        content: the file.
        begin: where the first frame begins.
    """
    first = frame_of(content[begin : begin + 4])
    if first is None:
        raise damaged(f"at byte {begin:,}: no frame", "frames of MP3")
    at, count = begin, 0
    while at < len(content):
        frame = frame_of(content[at : at + 4])
        if frame is None or frame[:3] != first[:3]:
            if _only_tags(content, at):
                break
            raise damaged(f"at byte {at:,}: no frame", "one after the other")
        if at + frame.size > len(content):
            raise damaged(
                f"the file ends after {len(content) - at} bytes of frame {count:,}",
                f"{frame.size}",
            )
        at += frame.size
        count += 1
    promised = _promised_frames(content[begin : begin + first.size], first)
    if promised is not None:
        count -= 1  # the frame that says so holds no sound
        if promised != count:
            raise damaged(f"{count:,} frames", f"{promised:,}, as the first frame says")
    if count == 0:
        raise damaged("no frame of sound")
    if promised is not None:  # and what of them is sound
        return Promise("MP3", first.rate, first.channels, None, begin, at)
    frames, claimed = count * first.samples, (count + 1) * LARGEST
    return Promise("MP3", first.rate, first.channels, frames, begin, at, claimed)


def _only_tags(content: bytes, at: int) -> bool:
    rest = content[at : at + 16]
    return rest.startswith(TAGS) or not any(content[at:])


def _promised_frames(frame: bytes, head: Frame) -> int | None:
    """What Xing's, LAME's or Fraunhofer's header says, where there is one that says it."""
    side = (32, 17) if head.version == 1 else (17, 9)
    at = 4 + side[head.channels == 1]
    named = frame[at : at + 4] in (b"Xing", b"Info") and len(frame) >= at + 12
    flags, end = int.from_bytes(frame[at + 4 : at + 8], "big"), at + CHECKED
    if frame[at + 120 : at + 124] in WRITERS and len(frame) >= end + 2:
        checksum = int.from_bytes(frame[end : end + 2], "big")
        if not named or flags != ALL or checksum not in (0, _checksum(frame[:end])):
            raise damaged("a first frame that is not what was written", "its checksum")
    if named:
        return int.from_bytes(frame[at + 8 : at + 12], "big") if flags & 1 else None
    if frame[36:40] == b"VBRI":
        return int.from_bytes(frame[50:54], "big")
    return None


def _checksum(content: bytes) -> int:
    """CRC-16 of 0x8005, from the lowest bit on, from 0 on."""
    value = 0
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value
