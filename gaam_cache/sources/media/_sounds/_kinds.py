"""What kinds of files of sound there are, and what a file begins with."""

from __future__ import annotations

from gaam_cache.sources.media._flaws import Flaw
from gaam_cache.sources.media._sounds._chunks import aiff, au, caf, wav
from gaam_cache.sources.media._sounds._flac import flac
from gaam_cache.sources.media._sounds._mpeg import frame_of, mpeg
from gaam_cache.sources.media._sounds._ogg import ogg
from gaam_cache.sources.media._sounds._promise import Promise, damaged, empty

READERS = {"wav": wav, "aiff": aiff, "flac": flac, "ogg": ogg, "au": au, "caf": caf}


def begins_sound(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    return head[:3] == b"ID3" or _kind(head) is not None


def _kind(head: bytes) -> str | None:
    start, form = head[:4], head[8:12]
    if start in (b"RIFF", b"RIFX", b"RF64"):
        return "wav" if form == b"WAVE" else None
    if start == b"FORM":
        return "aiff" if form in (b"AIFF", b"AIFC") else None
    starts = {b"fLaC": "flac", b"OggS": "ogg", b".snd": "au", b"caff": "caf"}
    return starts.get(start) or ("mpeg" if frame_of(head) else None)


def promise_of(content: bytes, where: str) -> Promise:
    """What a file says of itself, as far as that can be seen without decoding it.

    Raises:
        DataError: it is empty, damaged, or promises what no sound has.
    """
    try:
        if not content:
            raise empty("0 bytes")
        begin = _tags(content)
        kind = _kind(content[begin : begin + 16])
        if kind is None:
            raise damaged(f"{content[begin : begin + 8].hex(' ')} at byte {begin:,}")
        if kind == "mpeg":
            promise = mpeg(content, begin)
        else:
            promise = READERS[kind](content[begin:])._replace(begin=begin)
    except Flaw as error:
        raise error.at(where) from error
    promise.check(where)
    return promise


def _tags(content: bytes) -> int:
    """Bytes of ID3 tags that precede a sound."""
    at = 0
    while content[at : at + 3] == b"ID3" and len(content) >= at + 10:
        size = 0
        for byte in content[at + 6 : at + 10]:
            size = size << 7 | byte & 0x7F
        at += 10 + size + (10 if content[at + 5] & 0x10 else 0)
    return at
