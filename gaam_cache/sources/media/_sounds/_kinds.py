"""What files of sounds begin with."""

from __future__ import annotations


def begins_sound(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    kind, form = head[:4], head[8:12]
    if kind in (b"RIFF", b"RIFX", b"RF64"):
        return form == b"WAVE"
    if kind == b"FORM":
        return form in (b"AIFF", b"AIFC")
    return kind in (b"fLaC", b"OggS", b".snd", b"caff") or head[:3] == b"ID3" or is_mpeg(head)


def is_mpeg(head: bytes) -> bool:
    """Whether it begins with a valid header of an MPEG frame of layer II or III.

    Not of layer I: so begin texts in UTF-16 too.
    """
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer in (1, 2) and bitrate not in (0, 15) and rate != 3
