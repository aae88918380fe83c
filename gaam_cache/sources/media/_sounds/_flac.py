"""FLAC: what its first block says."""

from __future__ import annotations

from gaam_cache.sources.media._sounds._promise import Promise, damaged, endless

RATES = (88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)
"""Hz, as frames say them by 1, 2, 3..."""


def flac(content: bytes) -> Promise:
    """STREAMINFO: rate, channels, number of samples, and the MD5 of all of them."""
    if len(content) < 42 or content[4] & 0x7F != 0 or content[5:8] != b"\0\0\x22":
        raise damaged("no block STREAMINFO", "the header of FLAC")
    fields = int.from_bytes(content[18:26], "big")
    rate, channels = fields >> 44, (fields >> 41 & 7) + 1
    bits, frames = (fields >> 36 & 31) + 1, fields & (1 << 36) - 1
    if frames == 0:
        raise endless("FLAC without a number of samples")
    said = _rate_of_frame(content)
    if said not in (None, rate):
        raise damaged(f"{rate:,} Hz in the header", f"{said:,} Hz, as the first frame says")
    md5 = content[26:42]
    return Promise("FLAC", rate, channels, frames, bits=bits, md5=md5 if any(md5) else None)


def _rate_of_frame(content: bytes) -> int | None:
    """Of the first frame, in Hz; its header has a checksum, and that of the file has none."""
    at, last = 4, False
    while not last and at + 4 <= len(content):
        last = bool(content[at] & 0x80)
        at += 4 + int.from_bytes(content[at + 1 : at + 4], "big")
    head = content[at : at + 3]
    code = head[2] & 15 if len(head) == 3 and head[:2] in (b"\xff\xf8", b"\xff\xf9") else 0
    return RATES[code - 1] if 1 <= code <= len(RATES) else None
