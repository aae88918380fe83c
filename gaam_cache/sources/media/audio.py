"""Sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._decoder import Decoder
from gaam_cache.sources.media._sounds._kinds import begins_sound
from gaam_cache.sources.media._sounds._library import versions
from gaam_cache.sources.media._sounds._pieces import parts
from gaam_cache.sources.media._sounds._sound import Sound, Sounds


class Audio(Medium):
    """WAV, FLAC, OGG (Vorbis, Opus), MP3, AIFF, AU and CAF, as libsndfile decodes them."""

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
        decoder = Decoder(blob.read(), blob.where)
        frames = sum(len(block_T) for block_T in decoder.blocks())
        rate = decoder.rate
        return [
            {"rate": rate, "start": start, "stop": stop, "whole": frames}
            for start, stop in parts(frames, rate, config.clip_seconds, config.clip_mode)
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
