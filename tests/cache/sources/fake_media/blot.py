"""Another kind of files for tests: 'BLOT', then anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._blob import Blob


@dataclass(frozen=True, kw_only=True, slots=True)
class _Blots(Media):
    kind: ClassVar[str] = "blot"
    noun: ClassVar[str] = "blot"


@dataclass(frozen=True)
class _Blot:
    blob: Blob

    @property
    def identity(self) -> bytes:
        return self.blob.sha256.encode()


class Blot(Medium):
    """Whatever follows the word."""

    rows: ClassVar[type[Media]] = _Blots
    suffixes: ClassVar[frozenset[str]] = frozenset({".blot", ".blt"})

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """By its first word."""
        return head.startswith(b"BLOT")

    @classmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:
        """One row each."""
        blob.read()
        return [{}]

    @classmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> _Blot:
        """It."""
        return _Blot(blob)
