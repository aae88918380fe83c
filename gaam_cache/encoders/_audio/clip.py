"""Sounds on their way to an encoder: decoded and resampled when they are asked for.

S samples, T rows of features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import numpy as np
import soxr
from numpy.typing import NDArray

from gaam_cache.sources.media._base import Blob

QUALITY = "VHQ"
"""Of soxr: the passband is kept to 28 bits, more than any sound file has, at a cost that no encoder
notices."""


class Sound(Protocol):
    """A row."""

    @property
    def blob(self) -> Blob:
        """Its bytes."""

    @property
    def rate(self) -> int:
        """Of its file, in Hz."""

    @property
    def frames(self) -> int:
        """Samples of it, at that rate."""

    def samples(self) -> NDArray[np.float32]:
        """All of them, mono."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A sound as an encoder takes it."""

    x: NDArray[np.float32]
    """Features, time first: (S,) or (T, ...)."""
    real: int
    """How many of them are the sound's."""
    extent: int
    """Its samples."""

    def __len__(self) -> int:
        """What must be equal where only sounds of equal length may share a batch."""
        return self.extent

    def __getitem__(self, backwards: slice) -> Clip:
        """``[::-1]``: another one of the same length."""
        return Clip(np.ascontiguousarray(self.x[backwards]), self.real, self.extent)


def resampled_frames(frames: int, rate: int, new_rate: int) -> int:
    """Samples after ``resample``: to the nearest, half of one up."""
    return (2 * frames * new_rate + rate) // (2 * rate)


def resample(samples_S: NDArray[np.float32], rate: int, new_rate: int) -> NDArray[np.float32]:
    """A sound at another rate by soxr, all of it at once; as it is where the rates agree."""
    if rate == new_rate:
        return samples_S
    found: NDArray[np.float32] = soxr.resample(samples_S, rate, new_rate, quality=QUALITY)
    return found


class Clips(Sequence[Clip]):
    """Clips of sounds, made anew whenever one is asked for: at no time are all of them there.

    Args:
        sounds: the rows.
        make: of one of them the clip.
    """

    def __init__(self, sounds: Sequence[Sound], make: Callable[[Sound], Clip]) -> None:
        self._sounds = sounds
        self._make = make

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._sounds)

    @overload
    def __getitem__(self, row: int) -> Clip: ...

    @overload
    def __getitem__(self, row: slice) -> Clips: ...

    def __getitem__(self, row: int | slice) -> Clip | Clips:
        """Of one row, or of some."""
        if isinstance(row, slice):
            return Clips(self._sounds[row], self._make)
        return self._make(self._sounds[row])
