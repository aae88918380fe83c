"""A sound that is decoded block by block."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.sources.media._sounds._library import soundfile

LEAST_RATE, MOST_RATE = 1_000, 768_000
"""Hz. Telephones have 8,000, the fastest converters that are sold 768,000."""
MOST_CHANNELS = 64
"""What MADI and the largest recorders carry."""
MOST_SECONDS = 12 * 3600
"""Of one sound: longer ones were not meant to be a row of a data set."""
MOST_VALUES = MOST_SECONDS * 48_000 * 2
"""Samples of all channels of one sound: 12 hours of stereo at 48 kHz. It bounds the time that a
small file can take which was made to decode into a large one."""
LOUDEST = 100.0
"""Full scale is 1. What is mixed in floating point passes it by 10 or 20 dB, lossy codecs by 3; 40
dB above it are integers that nobody scaled."""
BLOCK_VALUES = 1 << 18
"""Samples of all channels that are in memory at a time: 1 MiB of float32. Blocks of a quarter and
of four times as many were not faster."""
CODED = frozenset(
    [
        "PCM_S8",
        "PCM_U8",
        "PCM_16",
        "PCM_24",
        "PCM_32",
        "FLOAT",
        "DOUBLE",
        "ULAW",
        "ALAW",
        "VORBIS",
        "OPUS",
        "MPEG_LAYER_II",
        "MPEG_LAYER_III",
        "ALAC_16",
        "ALAC_20",
        "ALAC_24",
        "ALAC_32",
    ]
)
"""Codes that are read. Of the others (ADPCM, GSM, DWVW, G.72x) libsndfile returns more samples than
were written, and does not say how many those were."""


class Decoder:
    """Reads one sound from its beginning, mono.

    Args:
        content: the file.
        where: for messages.

    Raises:
        DataError: it is no sound that can be read, or promises what no sound has.
        ConfigError: what decodes sounds is not installed.
    """

    def __init__(self, content: bytes, where: str) -> None:
        library = soundfile()
        self._where = where
        self._error = library.SoundFileError
        try:
            self._file = library.SoundFile(io.BytesIO(content))
        except self._error as error:
            raise damaged(f"libsndfile: {error}", where) from error
        self.position = 0
        """Frames that were read."""
        self.rate = int(self._file.samplerate)
        """In Hz."""
        self.channels = int(self._file.channels)
        """That are mixed to one."""
        self.promised = int(self._file.frames)
        """Frames, as the file says."""
        self._check()

    def _check(self) -> None:
        where, file = self._where, self._file
        if file.subtype not in CODED:
            raise DataError(
                "a sound is coded in a way that is not read",
                expected="PCM, floating point, mu-law, A-law, FLAC, ALAC, Vorbis, Opus or MP3",
                found=f"{file.format_info}, {file.subtype_info}",
                where=where,
                hint="convert it to FLAC",
            )
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise DataError(
                "a sound has a sampling rate that none has",
                expected=f"{LEAST_RATE:,} to {MOST_RATE:,} Hz",
                found=f"{self.rate:,} Hz",
                where=where,
            )
        if not 1 <= self.channels <= MOST_CHANNELS:
            raise DataError(
                "a sound has more channels than are read",
                expected=f"1 to {MOST_CHANNELS}",
                found=f"{self.channels:,}",
                where=where,
            )
        self._check_length(self.promised)
        if self.promised == 0:
            raise DataError(
                "a sound is empty", expected="one sample or more", found="0 samples", where=where
            )

    def _check_length(self, frames: int) -> None:
        if frames > self.longest:
            raise DataError(
                "a sound is too long",
                expected=f"{MOST_SECONDS // 3600} hours and {MOST_VALUES:,} samples of all its "
                "channels at most",
                found=f"{frames:,} samples of {self.channels} channels at {self.rate:,} Hz",
                where=self._where,
                hint="cut it into files, one for each row",
            )

    @property
    def longest(self) -> int:
        """Frames that such a sound may have at most."""
        return min(MOST_SECONDS * self.rate, MOST_VALUES // self.channels)

    def read(self, frames: int) -> NDArray[np.float32]:
        """The next samples: float32 (frames,), fewer where it ends.

        Numerics: several channels are decoded as float64, and their mean is rounded once.

        Raises:
            DataError: it is damaged, or holds what is no sample.
        """
        mono = self.channels == 1
        try:
            x_TC = self._file.read(frames, dtype="float32" if mono else "float64", always_2d=True)
        except self._error as error:
            raise damaged(
                f"libsndfile, after {self.position:,} samples: {error}", self._where
            ) from error
        if not len(x_TC):
            return np.empty(0, np.float32)
        with np.errstate(invalid="ignore"):
            least, most = x_TC.min(), x_TC.max()
        if not (least >= -LOUDEST and most <= LOUDEST):  # so that NaN is refused too
            raise DataError(
                "a sound holds what is no sample",
                expected=f"finite numbers, {LOUDEST:g} at most where 1 is full scale",
                found=f"{least} to {most} in samples {self.position:,} to "
                f"{self.position + len(x_TC):,}",
                where=self._where,
                hint="samples in floating point are to be scaled to [-1, 1]",
            )
        self.position += len(x_TC)
        x_T: NDArray[np.float32] = x_TC[:, 0] if mono else x_TC.mean(axis=1).astype(np.float32)
        return x_T

    def blocks(self, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """All that follow, up to frame ``stop``, in blocks.

        Raises:
            DataError: as ``read``; it is longer than any may be.
        """
        size = max(1, BLOCK_VALUES // self.channels)
        while stop is None or self.position < stop:
            x_T = self.read(size if stop is None else min(size, stop - self.position))
            if not len(x_T):
                return
            self._check_length(self.position)
            yield x_T

    def seek(self, frame: int) -> None:
        """Go on from there; what lies between is decoded if it is coded in frames that overlap."""
        for _ in self.blocks(frame):
            pass


def damaged(found: str, where: str, *, expected: str = "a whole sound") -> DataError:
    """What is said of a file that is not what it was."""
    return DataError(
        "a sound is damaged",
        expected=expected,
        found=found,
        where=where,
        hint="get the file again, or remove its row",
    )
