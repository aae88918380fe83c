"""Encode further rows as those of a cache were encoded.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.base import Encoder, one_ahead
from gaam_cache.extraction.job import warn
from gaam_cache.extraction.reopen import reopen
from gaam_cache.extraction.states import PreparedRows, StateExtractor
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.media.base import library
from gaam_cache.sources.rows.collect import given_rows
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import Plan

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
"""Modes of pictures of Pillow that a PNG file keeps as they are."""
LOADING_LOCK = threading.Lock()
"""Held while an encoder is opened or a decoder is built: transformers sets the default type of all
threads while it loads weights, and parameters are of that type."""


class LocatedRows(NamedTuple):
    """Rows, and where each of them stands: those of a file need not follow one another."""

    rows: Sequence[Any]
    places: Sequence[str]  # as in 'line 7', one of every row


class RowEncoder:
    """States of rows as ``gaam extract`` would have stored them in a cache.

    With the same proof too: some rows of every call are encoded again, alone. Several threads may
    use one: they take turns at the tokenizer and at the model.
    """

    def __init__(
        self,
        plan: Plan,
        config: ExtractConfig,
        encoder: Encoder,
        tally: ExtractionStats,
    ) -> None:
        """Use ``RowEncoder.open``."""
        self.plan, self.tally, self._config, self._encoder = (
            plan,
            tally,
            config,
            encoder,
        )
        self._warned = False
        self._maker = StateExtractor(
            encoder, plan, config.batch_tokens, tally, further=True
        )
        self._preparing, self._running = threading.Lock(), threading.Lock()

    @classmethod
    def open(
        cls,
        plan: Plan,
        *,
        encoder: str | None = None,
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> RowEncoder:
        """Find the encoder, make sure that it is that one, and load its weights.

        Args:
            plan: of the cache.
            encoder: folder or id of the encoder, where it is not where it was then.
            device: auto, cpu, cuda, cuda:N or mps.
            batch_tokens: tokens of one batch, padding included; default: what suits the device.

        Raises:
            ConfigError: another encoder, or other decoders of files; or imported states.
            NotFoundError: no encoder there, or not the rows that it was fitted on.
        """
        with LOADING_LOCK:
            config, opened = reopen(plan, encoder, device, batch_tokens)
        return cls(plan, config, opened, ExtractionStats())

    def encode(
        self, rows: Sequence[str], *, pooling: str, origin: str = "the rows"
    ) -> NDArray[np.float32]:
        """States of some rows, rounded as the cache stores them; see ``stream``."""
        [states_NLD] = self.stream([rows], pooling=pooling, origin=origin)
        return states_NLD

    def stream(
        self,
        chunks: Iterable[Sequence[str] | LocatedRows],
        *,
        pooling: str,
        origin: str = "the rows",
    ) -> Iterator[NDArray[np.float32]]:
        """States of chunk after chunk; the next one is made ready while one is encoded.

        Shape:
            N texts, or N sounds or pictures: paths, bytes of files, pictures of Pillow, or
            (samples, rate). Result: (N, L, D), of all layers.

        Args:
            chunks: of rows, about 2,048 at a time.
            pooling: one of the cache's.
            origin: what to call where the rows are from, in messages.

        Raises:
            DataError: rows that cannot be used, such as empty ones.
            NumericsError: a state that cannot be stored, or is not that of its row alone.
            ShortOfMemoryError: too little memory for one row.
        """
        if pooling not in self.plan.pooling:
            raise plugins.unknown("pooling of these rows", pooling, self.plan.pooling)

        def placed() -> Iterator[LocatedRows]:
            row = 0
            for chunk in chunks:
                if not isinstance(chunk, LocatedRows):
                    chunk = LocatedRows(
                        chunk, [f"row {row + n}" for n in range(1, 1 + len(chunk))]
                    )
                row += len(chunk.rows)
                yield chunk

        for piece in one_ahead(lambda chunk: self._prepare(chunk, origin), placed()):
            yield self._states(piece, pooling)
        self._warn_of_doubts()

    def _warn_of_doubts(self) -> None:
        """Say, once for all calls, where rows are not what they seem to be."""
        encoder = self._encoder
        lines = self.tally.doubts(
            noun=encoder.noun,
            max_length=encoder.max_length,
            causal=bool(encoder.acts_causal),
            storage_dtype=self.plan.storage_dtype,
        )
        if not self._warned:
            warn(lines)
        self._warned |= bool(lines)

    def _prepare(self, placed: LocatedRows, origin: str) -> PreparedRows | None:
        if not len(placed.rows):
            return None
        (rows, places), kind = placed, self.plan.kind
        cells = [
            _cell_of(row, kind, place) for row, place in zip(rows, places, strict=True)
        ]
        found = given_rows(cells, kind, self._config, origin=origin, places=places)
        with self._preparing:
            return self._maker.prepare(
                found.inputs, found.essences(), origin=origin, places=places
            )

    def _states(self, piece: PreparedRows | None, pooling: str) -> NDArray[np.float32]:
        if piece is None:
            return np.empty(
                (0, self.plan.num_layers, self.plan.hidden_size), np.float32
            )
        with self._running:
            encoded = self._maker.encode(piece, lambda rows: None)
            states = self._maker.states(encoded)[pooling]
        bfloat16 = self.plan.storage_dtype == "bfloat16"
        return as_float32(states) if bfloat16 else states.astype(np.float32)


def _cell_of(row: Any, kind: str, place: str) -> Any:
    """What a table would hold of a row: a text, a path, or the bytes of a file.

    A picture of Pillow becomes a PNG or TIFF, samples with their rate a WAV of fractions: both
    keep every number.
    """
    if isinstance(row, PurePath):
        return str(row)
    if kind == "vision" and hasattr(row, "getexif"):
        return _picture_bytes(row)
    if kind != "audio" or isinstance(row, str | bytes):
        return row
    if isinstance(row, Mapping) and {"array", "sampling_rate"} <= row.keys():
        return _sound_bytes(row["array"], row["sampling_rate"], place)
    if isinstance(row, tuple) and len(row) == 2:
        return _sound_bytes(*row, place)
    raise DataError(
        "a sound has no sampling rate",
        expected="a path, or (samples, rate), such as (array, 16000)",
        found=type(row).__name__,
        where=place,
    )


def _picture_bytes(image: Any) -> bytes:
    file = io.BytesIO()
    lossless = "PNG" if image.mode in PNG_MODES else "TIFF"
    # the orientation of a camera is applied by whoever reads the file
    image.save(file, lossless, exif=image.getexif())
    return file.getvalue()


def _sound_bytes(samples: Any, rate: Any, place: str) -> bytes:
    """A WAV file of samples (T,) or, of several channels, (T, C) or (C, T)."""
    samples_T = np.asarray(samples)
    if samples_T.dtype.kind == "i":
        # as files have them: whole numbers of 16 bits lie between -32,768 and 32,767
        samples_T = samples_T / -float(np.iinfo(samples_T.dtype).min)
    elif samples_T.dtype.kind != "f":
        raise DataError(
            "samples are no sound",
            expected="fractions from -1 to 1, or signed whole numbers",
            found=str(samples_T.dtype),
            where=place,
        )
    samples_T = samples_T.astype(np.float32)
    if samples_T.ndim == 2 and len(samples_T) < samples_T.shape[1]:
        samples_T = samples_T.T
    if samples_T.ndim not in (1, 2) or not samples_T.size:
        raise DataError(
            "samples are no sound", found=f"shape {samples_T.shape}", where=place
        )
    file = io.BytesIO()
    soundfile = library("soundfile", "audio")
    soundfile.write(file, samples_T, int(rate), format="WAV", subtype="FLOAT")
    return file.getvalue()
