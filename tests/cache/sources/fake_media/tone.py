"""A kind of files for tests: 'TONE', then a byte for every sample; 0xFF is damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tones(Media):
    kind: ClassVar[str] = "tone"
    noun: ClassVar[str] = "tone"


@dataclass(frozen=True)
class _Tone:
    blob: Blob
    start: int
    stop: int

    @property
    def identity(self) -> bytes:
        return f"{self.blob.sha256} {self.start} {self.stop}".encode()

    def samples(self) -> bytes:
        return self.blob.read()[4:][self.start : self.stop]


class Tone(Medium):
    """Samples of a byte; a second has ten."""

    rows: ClassVar[type[Media]] = _Tones
    suffixes: ClassVar[frozenset[str]] = frozenset({".tone"})
    reads: ClassVar[frozenset[str]] = frozenset({"clip_seconds", "clip_mode"})

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """By its first word."""
        return head.startswith(b"TONE")

    @classmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:
        """A row, or one for every piece."""
        samples = blob.read()[4:]
        if b"\xff" in samples or not samples:
            raise DataError("a tone is damaged", found=f"{len(samples)} samples", where=blob.where)
        longest = len(samples) if config.clip_seconds is None else round(10 * config.clip_seconds)
        ends = range(0, len(samples) if config.clip_mode == "split" else 1, longest)
        return [{"start": at, "stop": min(at + longest, len(samples))} for at in ends]

    @classmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> _Tone:
        """It, or a piece."""
        return _Tone(blob, facts["start"], facts["stop"])
