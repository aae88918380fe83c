"""Sounds that are made on the fly."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from gaam_cache.format.digest import digest_of
from gaam_cache.sources.media._blob import Blob


@dataclass(frozen=True, kw_only=True, slots=True)
class BytesBlob(Blob):
    content: bytes

    @classmethod
    def of(cls, content: bytes, where: str = "a.wav") -> BytesBlob:
        return cls(where=where, size=len(content), sha256=digest_of(content), content=content)

    def _read(self) -> bytes:
        return self.content


def written(x_TC: np.ndarray, rate: int, kind: str, code: str | None) -> bytes:
    """A file as libsndfile writes it."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, x_TC, rate, format=kind, subtype=code)
    return file.getvalue()
