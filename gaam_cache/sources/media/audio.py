"""Sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import PUBLISHED_SECONDS
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._decoder import Decoder
from gaam_cache.sources.media._sounds._kinds import begins_sound
from gaam_cache.sources.media._sounds._library import versions
from gaam_cache.sources.media._sounds._pieces import parts
from gaam_cache.sources.media._sounds._sound import Sound, Sounds


class Audio(Medium):
    """WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, AU and CAF, as libsndfile decodes them.

    What a file says of itself is compared with what is there and with what comes out of it. That
    its end is missing is always seen, but for MP3 whose first frame does not say how many follow
    and that ends between two of them. That a bit of it is another is always seen where a checksum
    covers what is heard, as in FLAC and OGG; of WAV, AIFF, AU, CAF and MP3 it is seen in headers
    alone, and there not of the rate of AIFF, AU and CAF, nor of a code that takes as many bytes.
    A FLAC file without MD5 has but the checksums of its frames. FLAC, WAV, AU and CAF that were
    written into a pipe do not say how long they are, and are refused.
    """

    rows: ClassVar[type[Media]] = Sounds
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {".wav", ".wave", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
        | {".aif", ".aiff", ".aifc", ".au", ".snd", ".caf"}
    )
    reads: ClassVar[frozenset[str]] = frozenset({"clip_seconds", "clip_mode"})

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """By what such files begin with."""
        return begins_sound(head)

    @classmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:
        """Decode all of it, and say which part of it is a row, or which parts are rows.

        Raises:
            DataError: it is empty, damaged, too long, or no sound.
            ConfigError: what decodes sounds is not installed.
        """
        with Decoder(blob.read(), blob.where) as decoder:
            frames = sum(len(block_T) for block_T in decoder.blocks())
        rate, seconds = decoder.rate, config.clip_seconds
        if config.published_audio:
            seconds = PUBLISHED_SECONDS
        return [
            {"rate": rate, "start": start, "stop": stop, "whole": frames}
            for start, stop in parts(frames, rate, seconds, config.clip_mode)
        ]

    @classmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> Sound:
        """The sound that a row stands for."""
        return Sound(blob=blob, **facts)

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Of what decodes sounds: soundfile and libsndfile.

        Raises:
            ConfigError: it is not installed.
        """
        return versions()
