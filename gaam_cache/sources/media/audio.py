"""Sounds in files: what libsndfile reads (WAV, FLAC, OGG, MP3, AIFF, ...), by soundfile."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import DataError
from gaam_cache.config import PUBLISHED_SECONDS, ExtractConfig
from gaam_cache.sources.media.base import Item, Media, library

RULES = "mono by the mean"
"""What we make of what libsndfile reads; to be changed with it, for it decides numbers."""
SHORTEST_TAIL = 0.1
"""Seconds. A shorter rest of a sound that is split is no row: of 25 ms windows that are 20 ms
apart, as speech encoders have them, it holds at most four."""
CANCELLED = 0.1
"""Of the loudness of the channels: what of it their mean has at least. Of two that have nothing in
common it has 0.7."""
STARTS = (
    b"RIFF",
    b"RIFX",
    b"RF64",
    b"FORM",
    b"fLaC",
    b"OggS",
    b".snd",
    b"caff",
    b"ID3",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sound(Item):
    """All of a file, or a piece of it: samples ``start`` to ``stop`` of ``whole``."""

    rate: int  # of the file, in Hz
    start: int
    stop: int
    whole: int
    silent: bool  # whether all of its samples are 0

    @property
    def frames(self) -> int:
        """Samples that are its own."""
        return self.stop - self.start

    @property
    def identity(self) -> bytes:
        """The digest of the file, and which samples of it where that is not all."""
        part = "" if self.frames == self.whole else f"{self.start}-{self.stop}"
        return bytes.fromhex(self.sha256) + part.encode()

    def samples(self) -> NDArray[np.float32]:
        """Decoded: float32 (frames,), the mean of all channels; not to be written to."""
        file = Item(
            name=self.name,
            path=self.path,
            offset=self.offset,
            size=self.size,
            sha256=self.sha256,
        )
        return _decoded_file(file)[self.start : self.stop]


class Audio(Media):
    """Sounds. Of several channels the mean is heard; libsndfile says what is damaged."""

    kind: ClassVar[str] = "audio"
    noun: ClassVar[str] = "sound"
    suffixes: ClassVar[frozenset[str]] = frozenset(
        {".wav", ".wave", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
        | {".aif", ".aiff", ".aifc", ".au", ".snd", ".caf"}
    )

    @classmethod
    def claims(cls, head: bytes) -> bool:
        mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 in (0xE2, 0xE4)
        return mpeg or (head.startswith(STARTS) and head[8:12] != b"WEBP")

    @classmethod
    def items(
        cls, content: bytes, config: ExtractConfig, **file: Any
    ) -> Sequence[_Sound]:
        """All of a sound, its beginning, or its pieces, as the configuration says.

        Piece i lasts from sample round(i * seconds * rate) to round((i + 1) * seconds * rate).
        """
        rate, x_T = _decoded(content, Item(**file).where)
        whole, split = len(x_T), config.clip_mode == "split"
        seconds = PUBLISHED_SECONDS if config.published_audio else config.clip_seconds
        found: list[_Sound] = []
        start = i = 0
        while start < whole and (split or not found):
            i += 1
            end = (
                whole if seconds is None else max(round(i * seconds * rate), start + 1)
            )
            stop = min(end, whole)
            if not found or stop == end or stop - start >= SHORTEST_TAIL * rate:
                silent = not x_T[start:stop].any()
                about: dict[str, Any] = {"rate": rate, "start": start, "stop": stop}
                found.append(_Sound(**file, **about, whole=whole, silent=silent))
            start = stop
        return found

    def doubts(self) -> Iterator[str]:
        """A line where sounds are silent: nothing of one can be told from another."""
        yield from self.few_alike(
            sum(one.silent for one in self.inputs),
            "hold nothing but zeros, as far as they are read",
        )

    @classmethod
    def decoders(cls) -> dict[str, str]:
        module = library("soundfile", cls.kind)
        versions = {
            "soundfile": module.__version__,
            "libsndfile": module.__libsndfile_version__,
        }
        return {"gaam": RULES} | versions


def _decoded(content: bytes, where: str) -> tuple[int, NDArray[np.float32]]:
    """Rate, and samples (T,); several channels are decoded as float64, their mean rounded once.

    A file is read at once: what libsndfile 1.2.2 reads of MP3 after a seek differs in last bits.
    """
    module = library("soundfile", "audio")
    try:
        with module.SoundFile(io.BytesIO(content)) as file:
            dtype = "float32" if file.channels == 1 else "float64"
            x_TC, rate = file.read(dtype=dtype, always_2d=True), int(file.samplerate)
    except (module.SoundFileError, ValueError) as error:
        raise DataError(
            "a sound cannot be read",
            expected="a whole sound in a format of libsndfile",
            found=str(getattr(error, "error_string", error)),
            where=where,
            hint="get the file again or convert it, or remove its row",
        ) from error
    if not len(x_TC) or not np.isfinite(x_TC).all():
        found = "numbers that are not finite" if len(x_TC) else "no samples"
        raise DataError(
            "a sound is empty or damaged", expected="samples", found=found, where=where
        )
    if x_TC.shape[1] == 1:
        return rate, x_TC[:, 0].astype(np.float32)
    x_T = x_TC.mean(axis=1)
    loudness, left = (float(np.sqrt(np.mean(np.square(x)))) for x in (x_TC, x_T))
    if left < CANCELLED * loudness:
        raise DataError(
            "the channels of a sound cancel each other in their mean",
            expected=f"a mean that has at least {CANCELLED:.0%} of the loudness of the channels",
            found=f"{left / loudness:.1%}",
            where=where,
            hint="turn the sign of one channel, or keep one alone (sox IN OUT remix 1)",
        )
    return rate, x_T.astype(np.float32)


@lru_cache(maxsize=2)  # pieces of a file follow one another
def _decoded_file(file: Item) -> NDArray[np.float32]:
    return _decoded(file.content(), file.where)[1]
