"""A sound that is decoded block by block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.sources.media._sounds._kinds import promise_of
from gaam_cache.sources.media._sounds._library import soundfile
from gaam_cache.sources.media._sounds._promise import damaged, not_read
from gaam_cache.sources.media._sounds._source import Source, forwards

LOUDEST = 100.0
"""Full scale is 1. What is mixed in floating point passes it by 10 or 20 dB, lossy codecs by 3; 40
dB above it are integers that nobody scaled."""
BLOCK_VALUES = 1 << 18
"""Samples of all channels that are in memory at a time: 1 MiB of float32. Blocks of a quarter as
many were not faster."""
CODES = frozenset(
    {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"}
    | {"VORBIS", "OPUS", "MPEG_LAYER_II", "MPEG_LAYER_III"}
)
"""That are read, as libsndfile calls them."""


class Decoder:
    """Reads one sound from its beginning to its end, mono; to be closed, by ``with`` or ``close``.

    What soundfile itself closes when the interpreter ends, it closes with a traceback.

    Numerics: nothing is ever sought, see ``forwards``, so that samples do not depend on how those
    before them were read.

    Args:
        content: the file.
        where: for messages.

    Raises:
        DataError: it is no sound that can be read, or promises what no sound has.
        ConfigError: what decodes sounds is not installed.
    """

    def __init__(self, content: bytes, where: str) -> None:
        library = soundfile()
        promise = promise_of(content, where)
        self.rate = promise.rate
        """In Hz."""
        self.position = 0
        """Frames that were read."""
        self._promise = promise
        self._where = where
        self._error: type[Exception] = library.SoundFileError
        try:
            self._file = forwards(library)(
                Source(content[promise.begin : promise.end], promise.claimed)
            )
        except self._error as error:
            found = f"libsndfile: {getattr(error, 'error_string', error)}"
            raise damaged(found, f"a header of {promise.form}").at(where) from error
        try:
            self._check_header()
        except BaseException:
            self.close()
            raise
        self._md5 = None if promise.md5 is None else hashlib.md5(usedforsecurity=False)
        # libFLAC computes with integers, of which the file has a digest
        one = self._file.channels == 1
        self._dtype = "int32" if promise.bits else "float32" if one else "float64"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; also twice."""
        self._file.close()

    def _check_header(self) -> None:
        """Compare what libsndfile says of the file with what the file promises."""
        file, promise = self._file, self._promise
        if file.subtype not in CODES:
            raise not_read(f"{file.format_info}, {file.subtype_info}").at(self._where)
        self._frames = int(file.frames)
        self._compare((file.samplerate, file.channels), (promise.rate, promise.channels))
        if promise.frames is not None:
            if promise.claimed is not None:  # it is a guess, which is only to be large enough
                self._frames = min(self._frames, promise.frames)
            self._compare(self._frames, promise.frames)
        promise._replace(frames=self._frames).check(self._where)

    def _compare(self, found: Any, expected: Any) -> None:
        if found != expected:
            what = "frames" if isinstance(found, int) else "Hz and channels"
            raise damaged(f"{what}: {found}", f"{expected}, as the file says").at(self._where)

    def blocks(self, stop: int | None = None) -> Iterator[NDArray[np.float32]]:
        """All that follow, up to frame ``stop``: float32 (frames,), the mean of all channels.

        Numerics: several channels are decoded as float64, and their mean is rounded once.

        Raises:
            DataError: it is damaged, or holds what is no sample, or is longer than any may be.
        """
        size = max(1, BLOCK_VALUES // self._promise.channels)
        while stop is None or self.position < stop:
            x_T = self._read(size if stop is None else min(size, stop - self.position))
            if not len(x_T):
                self._check_end()
                return
            self._promise.check_length(self.position, self._where)
            yield x_T

    def skip(self, frame: int) -> None:
        """Go on from there. What lies between is decoded too.

        Raises:
            DataError: as ``blocks``.
        """
        for _ in self.blocks(frame):
            pass

    def _read(self, frames: int) -> NDArray[np.float32]:
        try:
            x_TC = self._file.read(frames, dtype=self._dtype, always_2d=True)
        except self._error as error:
            text = getattr(error, "error_string", error)
            found = f"libsndfile, after {self.position:,} frames: {text}"
            raise damaged(found).at(self._where) from error
        if x_TC.dtype == np.int32:
            if self._md5 is not None:
                self._md5.update(_packed(x_TC, self._promise.bits))
            x_TC = x_TC / 2.0**31
        self._check_values(x_TC)
        self.position += len(x_TC)
        x_T: NDArray[np.float32] = x_TC.mean(axis=1) if x_TC.shape[1] > 1 else x_TC[:, 0]
        return x_T.astype(np.float32, copy=False)

    def _check_values(self, x_TC: NDArray[Any]) -> None:
        if not len(x_TC):
            return
        least, most = x_TC.min(), x_TC.max()
        if not (least >= -LOUDEST and most <= LOUDEST):  # so that NaN is refused too
            raise DataError(
                "a sound holds what is no sample",
                expected=f"finite numbers, {LOUDEST:g} at most where 1 is full scale",
                found=f"{least:g} to {most:g} in frames {self.position:,} to "
                f"{self.position + len(x_TC):,}",
                where=self._where,
                hint="scale samples in floating point to [-1, 1]",
            )

    def _check_end(self) -> None:
        self._compare(self.position, self._frames)
        if self._md5 is not None and self._md5.digest() != self._promise.md5:
            raise damaged(
                f"samples of MD5 {self._md5.hexdigest()}",
                f"{(self._promise.md5 or b'').hex()}, as the file says",
            ).at(self._where)


def _packed(x_TC: NDArray[np.int32], bits: int) -> bytes:
    """As FLAC digests them: of each sample its bytes, the least first."""
    size = (bits + 7) // 8
    x_N4 = (x_TC >> (32 - bits)).astype("<i4").reshape(-1, 1).view(np.uint8)
    return x_N4[:, :size].tobytes()
