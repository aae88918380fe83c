"""What a file of sound says of itself, and what is said of one that does not keep it."""

from __future__ import annotations

from typing import NamedTuple

from gaam_cache.errors import DataError
from gaam_cache.sources.media._flaws import Flaw

LEAST_RATE, MOST_RATE = 1_000, 768_000
"""Hz. Telephones have 8,000, the fastest converters that are sold 768,000."""
MOST_CHANNELS = 64
"""What MADI and the largest recorders carry."""
MOST_SECONDS = 12 * 3600
"""Of one sound: longer ones were not meant to be a row of a data set."""
MOST_VALUES = MOST_SECONDS * 48_000 * 2
"""Samples of all channels of one sound: 12 hours of stereo at 48 kHz. It bounds the time that a
small file can take which was made to decode into a large one."""


class Promise(NamedTuple):
    """What a file says, read without decoding it."""

    form: str
    """Of the file, for messages."""
    rate: int
    """In Hz."""
    channels: int
    frames: int | None
    """Samples of each channel; None where only a decoder can tell."""
    begin: int = 0
    """Where it begins in the file: tags before it are not for the decoder."""
    end: int | None = None
    """One past its last byte, where other things may follow."""
    claimed: int | None = None
    """Bytes that the decoder is to be told there are, if it would else make too little of them."""
    bits: int = 0
    """Of a sample that ``md5`` covers."""
    md5: bytes | None = None
    """Of all samples, where the file says it."""

    @property
    def longest(self) -> int:
        """Frames that such a sound may have at most."""
        return min(MOST_SECONDS * self.rate, MOST_VALUES // self.channels)

    def check(self, where: str) -> None:
        """Refuse what no sound has.

        Raises:
            DataError: a rate, a number of channels or a length out of bounds.
        """
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise DataError(
                "a sound has a sampling rate that none has",
                expected=f"{LEAST_RATE:,} to {MOST_RATE:,} Hz",
                found=f"{self.rate:,} Hz",
                where=where,
            )
        if not 1 <= self.channels <= MOST_CHANNELS:
            raise DataError(
                "a sound has a number of channels that is not read",
                expected=f"1 to {MOST_CHANNELS}",
                found=f"{self.channels:,}",
                where=where,
            )
        if self.frames == 0:
            raise empty("0 samples").at(where)
        self.check_length(self.frames or 0, where)

    def check_length(self, frames: int, where: str) -> None:
        """Refuse one that is too long.

        Raises:
            DataError: it has more frames than ``longest``.
        """
        if frames > self.longest:
            raise DataError(
                "a sound is too long",
                expected=f"{MOST_SECONDS // 3600} hours at most, and {MOST_VALUES:,} samples of "
                "all its channels",
                found=f"{frames:,} samples of {self.channels} channels at {self.rate:,} Hz",
                where=where,
                hint="cut it into files, one for each row",
            )


def empty(found: str) -> Flaw:
    """A file holds nothing."""
    return Flaw(
        "a sound is empty",
        expected="one sample or more",
        found=found,
        hint="get the file again, or remove its row",
    )


def damaged(found: str, expected: str = "a whole sound") -> Flaw:
    """A file does not keep what it says."""
    return Flaw(
        "a sound is damaged",
        expected=expected,
        found=found,
        hint="get the file again, or remove its row",
    )


def endless(form: str) -> Flaw:
    """A file does not say how long it is, so that nobody could see that its end is missing."""
    return Flaw(
        "a sound does not say how long it is",
        expected="a header that was filled in when the file was complete",
        found=f"{form} as it is written into a pipe",
        hint="convert it, for example to FLAC, from a file into a file",
    )


def not_read(found: str) -> Flaw:
    """A file is whole, for all we know, and is coded as we do not read it.

    Of the others (ADPCM, GSM, DWVW, G.72x) libsndfile returns more samples than were written, and
    of what it writes as ALAC it reads some wrong.
    """
    return Flaw(
        "a sound is coded in a way that is not read",
        expected="PCM, floating point, mu-law, A-law, FLAC, Vorbis, Opus or MP3",
        found=found,
        hint="convert it to FLAC",
    )
