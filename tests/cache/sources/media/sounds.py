"""Sounds that are made on the fly."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaam_cache.config import ExtractConfig
from gaam_cache.format.digest import digest_of
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._sounds._sound import Sound
from gaam_cache.sources.media.audio import Audio


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

    file, x_TC = io.BytesIO(), x_TC.reshape(len(x_TC), -1)
    with soundfile.SoundFile(file, "w", rate, x_TC.shape[1], code, format=kind) as sound:
        for at in range(0, len(x_TC), 4096):  # more at once overflows the stack of libsndfile 1.2.2
            sound.write(x_TC[at : at + 4096])
    return file.getvalue()


def noise(frames: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.9, 0.9, (frames, channels))


def settings(**changed: Any) -> ExtractConfig:
    return ExtractConfig(encoder="x", dataset="x", **changed)


def sounds_of(content: bytes, **changed: Any) -> list[Sound]:
    """The rows of a file."""
    blob = BytesBlob.of(content)
    return [Audio.item(blob, facts) for facts in Audio.look(blob, settings(**changed))]
