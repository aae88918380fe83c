"""Sounds in files that libsndfile reads, such as WAV, FLAC, OGG, MP3 and AIFF.

Shapes: T samples, C channels.
"""

import io
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import DataError
from gaam_cache.config import PUBLISHED_SECONDS, ExtractConfig
from gaam_cache.sources.media.base import Item, Media, import_decoder

SAMPLE_RULES = "mono by the mean"
"""What gaam does to the samples of libsndfile. It decides numbers and is part of the
fingerprint, so it must change with the code."""
SHORTEST_TAIL = 0.1
"""Seconds. The rest of a sound that was cut into pieces is no row if it is shorter. It
would hold at most four of the 25 ms windows, 20 ms apart, of speech encoders."""
CANCELLED = 0.1
"""The least loudness of the mean of the channels, as a part of the loudness of all
channels. Two channels that have nothing in common give 0.7."""
LARGEST_PEAK = 8.0
"""Largest accepted sample of a sound in fractions.

Decoded MP3 files exceed 1 a little; 16-bit numbers without scaling reach thousands.
"""
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
SIZES_OF_HEADER_AND_FILE = re.compile(
    r"^\s*(?:data|SSND|Data Size|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE
)
"""A line of libsndfile's log: the size that the header says, and that of the file."""
UNKNOWN_SIZE = 2**31 - 2**16
"""A header that says this size or more does not know it: a program that writes into a
pipe begins before it knows."""
MP3_FIRST_FRAME = re.compile(rb"\xff[\xe2-\xff].{2,4}\0{9,32}(?:Xing|Info)", re.DOTALL)
"""The first frame of an MP3 file: a header of 4 bytes, a checksum or none, zeros, and
the mark of the encoder's description. Some encoders write none."""
OGG_PAGE = b"OggS\0"
OGG_HEADER = struct.Struct("<5sBq12xB")
"""Of a page: its mark, its flags, the number of samples up to its end, and the number
of bytes that give the lengths of its segments."""
OGG_FIRST = 2  # flag of the first page of a stream
OPUS_RATE = 48_000  # samples a second by which Opus counts, whatever the file's rate
# fmt: off
STARTS = (
    b"RIFF", b"RIFX", b"RF64", b"FORM", b"fLaC", b"OggS", b".snd", b"caff", b"ID3",
)
SUFFIXES = frozenset({
    ".wav", ".wave", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2",
    ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf",
})
# fmt: on


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sound(Item):
    """A sound in a file, or a piece of it."""

    rate: int  # of the file, in Hz
    start: int  # index of its first sample among those of the file
    stop: int  # index of the sample behind its last one
    file_frames: int  # number of samples in the file
    is_silent: bool  # whether all of its samples are 0

    @property
    def frames(self) -> int:
        """Number of samples of the sound, or of the piece."""
        return self.stop - self.start

    @property
    def identity(self) -> bytes:
        """The digest of the file, and for a piece where it begins and ends in it."""
        digest = bytes.fromhex(self.sha256)
        if self.frames == self.file_frames:
            return digest
        return digest + f"{self.start}-{self.stop}".encode()

    def samples(self) -> NDArray[np.float32]:
        """Decode the sound: the mean of all channels, (frames,).

        The caller must not change the array, which later calls share.
        """
        # ``_decode_file`` keeps its results by its argument. All pieces of a file make
        # the same argument, without their start and stop: the file is decoded once.
        file = Item(
            name=self.name,
            path=self.path,
            offset=self.offset,
            size=self.size,
            sha256=self.sha256,
        )
        return _decode_file(file)[self.start : self.stop]


class Audio(Media):
    """Sounds. Several channels become their mean; libsndfile finds damaged files."""

    kind: ClassVar[str] = "audio"
    noun: ClassVar[str] = "sound"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES

    @classmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file begins as a sound does that libsndfile reads."""
        # MP3 and MP2 without tags start with the header of an MPEG frame: eleven bits
        # that are set, two for the version, and two for the layer (01: MP3, 10: MP2).
        if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4):
            return True
        # WebP pictures are RIFF files too
        return head.startswith(STARTS) and head[8:12] != b"WEBP"

    @classmethod
    def items(
        cls, content: bytes, config: ExtractConfig, file: Item
    ) -> Sequence[_Sound]:
        """Decode a file; return the whole sound, its beginning, or all of its pieces.

        The configuration says which: without a length of clips it is the whole sound.

        Args:
            content: all bytes of the file.
            config: the extraction.
            file: where these bytes lie: maybe inside a larger file, from ``offset`` on.
        """
        rate, x_T = _decode(content, file.where)
        seconds = config.clip_seconds
        # The code of the GAAM paper, too, takes this many seconds of every sound.
        if config.published_audio:
            seconds = PUBLISHED_SECONDS
        # The whole file was decoded even for a short beginning, so that damage is found
        # now.
        pieces = _cut(len(x_T), rate, seconds, all_pieces=config.clip_mode == "split")
        return [
            _Sound(
                name=file.name,
                path=file.path,
                offset=file.offset,
                size=file.size,
                sha256=file.sha256,
                rate=rate,
                start=start,
                stop=stop,
                file_frames=len(x_T),
                is_silent=not x_T[start:stop].any(),
            )
            for start, stop in pieces
        ]

    def doubts(self) -> Iterator[str]:
        """Yield a warning if many sounds are silent: nothing tells these apart."""
        yield from self.doubt_if_many(
            sum(sound.is_silent for sound in self.inputs),
            "hold nothing but zeros, as far as they are read",
        )

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """Versions of all code that decides the samples, for the fingerprint."""
        soundfile = import_decoder("soundfile", cls.kind)
        return {
            "gaam": SAMPLE_RULES,
            "soundfile": soundfile.__version__,
            "libsndfile": soundfile.__libsndfile_version__,
        }


class _Piece(NamedTuple):
    """A part of a sound, or the whole sound."""

    start: int  # index of its first sample
    stop: int  # index of the sample behind its last one


def _cut(
    frames: int, rate: int, seconds: float | None, *, all_pieces: bool
) -> list[_Piece]:
    """Divide a sound into pieces, or cut it to its first piece.

    Piece i lasts from sample round(i * seconds * rate) to round((i + 1) * seconds *
    rate). A last piece that is shorter than ``SHORTEST_TAIL`` is dropped.

    Args:
        frames: number of samples of the sound.
        rate: samples a second.
        seconds: length of a piece; None for the sound as one piece.
        all_pieces: whether all pieces are wanted, or only the first.
    """
    if seconds is None:
        return [_Piece(0, frames)]
    pieces: list[_Piece] = []
    start = 0
    number = 0
    while start < frames and (all_pieces or not pieces):
        number += 1
        # even the shortest piece has one sample
        end = max(round(number * seconds * rate), start + 1)
        stop = min(end, frames)
        # a short sound is a row, but the short rest of a long one is not
        is_complete = stop == end
        if not pieces or is_complete or stop - start >= SHORTEST_TAIL * rate:
            pieces.append(_Piece(start, stop))
        start = stop
    return pieces


def _decode(content: bytes, where: str) -> tuple[int, NDArray[np.float32]]:
    """Decode the bytes of a sound file.

    Several channels are decoded as float64, and their mean is rounded once. The whole
    file is read at once: after a seek, libsndfile 1.2.2 reads MP3 with other last bits.

    Args:
        content: all bytes of the file.
        where: where the file is, for messages.

    Returns:
        Samples a second; and the mean of all channels, (T,).

    Raises:
        DataError: the file is damaged, holds no finite samples or numbers without
            scaling, or has channels that cancel each other.
    """
    soundfile = import_decoder("soundfile", "audio")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            # the mean of channels is computed in float64, so that it is rounded once
            dtype = "float32" if file.channels == 1 else "float64"
            x_TC: NDArray[Any] = file.read(dtype=dtype, always_2d=True)
            rate = int(file.samplerate)
            missing = _describe_damage(content, file, len(x_TC))
    except (soundfile.SoundFileError, ValueError) as error:
        raise DataError(
            "a sound cannot be read",
            expected="a whole sound in a format of libsndfile",
            found=str(getattr(error, "error_string", error)),
            where=where,
            hint="get the file again or convert it, or remove its row",
        ) from error

    if missing:
        raise DataError(
            "a sound is cut, damaged, or not the only one in its file",
            expected="all samples of one sound",
            found=missing,
            where=where,
            hint="get the file again or convert it, or remove its row",
        )
    _check_samples(x_TC, where)
    # one channel was decoded as float32 and is its own mean
    if x_TC.shape[1] == 1:
        return rate, x_TC[:, 0].astype(np.float32)
    x_T = x_TC.mean(axis=1)
    _check_cancellation(x_TC, x_T, where)
    return rate, x_T.astype(np.float32)


def _check_samples(x_TC: NDArray[Any], where: str) -> None:
    """Refuse no samples, samples that are not finite, and numbers without scaling.

    One infinite sample would make all states of its row NaN.

    Args:
        x_TC: samples of every channel, in float32 or float64.
        where: where the file is, for messages.
    """
    # of samples with a NaN the peak is NaN, which is not below any number
    peak = float(np.abs(x_TC).max(initial=0))
    if not len(x_TC) or not peak <= LARGEST_FLOAT32:
        raise DataError(
            "a sound is empty or damaged",
            expected="samples",
            found="numbers that are not finite" if len(x_TC) else "no samples",
            where=where,
        )
    check_peak(peak, where)


def check_peak(peak: float, where: str) -> None:
    """Refuse samples far outside of -1 to 1, such as 16-bit numbers without scaling.

    Args:
        peak: size of the largest sample.
        where: place of the sound, for messages.
    """
    if peak > LARGEST_PEAK:
        raise DataError(
            "samples are too large for fractions",
            expected="fractions from -1 to 1; decoded files may exceed 1 a little",
            found=f"a sample of size {peak:,.6g}",
            where=where,
            hint="of 16-bit samples give samples / 32768, or samples.astype('int16')",
        )


def _describe_damage(content: bytes, file: Any, num_frames: int) -> str:
    """What is left of a cut sound file, in words; empty if the file is whole.

    libsndfile reads what is left of a cut file without an error.

    Args:
        content: all bytes of the file.
        file: the file, opened by ``soundfile``.
        num_frames: number of frames that were read.
    """
    if num_frames < file.frames:
        return f"{num_frames:,} of {file.frames:,} samples"
    for claimed, actual in SIZES_OF_HEADER_AND_FILE.findall(file.extra_info):
        if int(actual) < int(claimed) < UNKNOWN_SIZE:
            return f"{int(actual):,} bytes; its header says {int(claimed):,}"
    # libsndfile stops where the description of the first stream says that it ends
    if file.format == "MP3":
        num_streams = len(MP3_FIRST_FRAME.findall(content))
        if num_streams > 1:
            return f"{num_streams} MP3 streams, of which only the first would be read"
    if content.startswith(OGG_PAGE):
        return _describe_damage_of_ogg(content, file, num_frames)
    return ""


def _describe_damage_of_ogg(content: bytes, file: Any, num_frames: int) -> str:
    """What is left of a cut OGG file, in words; see ``_describe_damage``."""
    pages = list(_ogg_pages(content))
    # not every program marks the last page as such, but a cut page is shorter than it
    # says
    if pages[-1].end > len(content):
        return "an OGG stream whose last page was cut"
    num_streams = sum(bool(page.flags & OGG_FIRST) for page in pages)
    if num_streams > 1:
        return f"{num_streams} OGG streams, of which only the first would be read"

    # pages of headers have no samples; a stream that was recorded from a broadcast
    # begins at a later sample than 0
    positions = [page.position for page in pages if page.position > 0]
    num_samples = max(positions, default=0) - min(positions, default=0)
    if file.subtype == "OPUS":
        num_samples = num_samples * file.samplerate // OPUS_RATE
    if num_frames < num_samples:
        return f"{num_frames:,} of at least {num_samples:,} samples"
    return ""


class _OggPage(NamedTuple):
    """A page of an OGG file."""

    flags: int
    position: int  # number of samples of the stream up to the end of the page
    end: int  # index of the byte behind it


def _ogg_pages(content: bytes) -> Iterator[_OggPage]:
    """Yield the pages of an OGG file; one that was cut ends behind the file."""
    for match in re.finditer(re.escape(OGG_PAGE), content):
        start = match.start() + OGG_HEADER.size
        if start > len(content):
            yield _OggPage(flags=0, position=0, end=start)
            return
        _, flags, position, num_segments = OGG_HEADER.unpack_from(
            content, match.start()
        )
        segments_start = start + num_segments
        num_bytes = sum(content[start:segments_start])
        yield _OggPage(flags, position, segments_start + num_bytes)


def _check_cancellation(
    x_TC: NDArray[np.float64], x_T: NDArray[np.float64], where: str
) -> None:
    """Refuse channels whose mean is nearly silent, as those of opposite phase.

    Args:
        x_TC: samples of every channel.
        x_T: their mean.
        where: where the file is, for messages.
    """
    channel_loudness = _loudness(x_TC)
    mean_loudness = _loudness(x_T)
    if mean_loudness < CANCELLED * channel_loudness:
        raise DataError(
            "the channels of a sound cancel each other in their mean",
            expected=f"a mean with at least {CANCELLED:.0%} of the loudness of the "
            "channels",
            found=f"{mean_loudness / channel_loudness:.1%}",
            where=where,
            hint="invert one channel, or keep only one channel (sox IN OUT remix 1)",
        )


def _loudness(x: NDArray[np.float64]) -> float:
    """Root of the mean square of all samples."""
    return float(np.sqrt(np.mean(np.square(x))))


@lru_cache(maxsize=2)  # the pieces of a file are read one after another
def _decode_file(file: Item) -> NDArray[np.float32]:
    """Decode a file, or return the array of an earlier call for it: (T,)."""
    _, x_T = _decode(file.content(), file.where)
    return x_T
