"""FLAC: what its first block says."""

from __future__ import annotations

from gaam_cache.sources.media._sounds._promise import Promise, damaged, endless


def flac(content: bytes) -> Promise:
    """STREAMINFO: rate, channels, number of samples, and the MD5 of all of them."""
    if len(content) < 42 or content[4] & 0x7F != 0 or content[5:8] != b"\0\0\x22":
        raise damaged("no block STREAMINFO", "the header of FLAC")
    fields = int.from_bytes(content[18:26], "big")
    rate, channels = fields >> 44, (fields >> 41 & 7) + 1
    bits, frames = (fields >> 36 & 31) + 1, fields & (1 << 36) - 1
    if frames == 0:
        raise endless("FLAC without a number of samples")
    md5 = content[26:42]
    return Promise("FLAC", rate, channels, frames, bits=bits, md5=md5 if any(md5) else None)
