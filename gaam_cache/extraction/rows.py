"""Encodes rows to predict as the rows of a cache were encoded.

N rows, L layers, D hidden size, T samples of a sound, C channels.
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
from gaam_cache.common.devices import LOADING_LOCK
from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.base import Encoder, prefetch
from gaam_cache.extraction.encoded import PreparedRows
from gaam_cache.extraction.job import warn
from gaam_cache.extraction.reopen import reopen
from gaam_cache.extraction.states import StateExtractor
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.media.audio import check_peak
from gaam_cache.sources.media.base import import_decoder
from gaam_cache.sources.rows.checks import truncation_warning
from gaam_cache.sources.rows.collect import rows_from_inputs
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import Plan

PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
"""Modes of Pillow's pictures that a PNG file keeps as they are."""


class LocatedRows(NamedTuple):
    """Rows, and the location of each in its source, for messages.

    The locations need not follow one another: a file may have empty lines.
    """

    rows: Sequence[Any]
    locations: Sequence[str]  # of every row, such as 'line 7'


class RowEncoder:
    """States of rows as ``gaam extract`` would have stored them in a cache.

    The proof of an extraction is made here, too: some rows of every call are encoded
    again, alone. Several threads may use one encoder: they take turns at the tokenizer
    and at the model.
    """

    def __init__(
        self,
        plan: Plan,
        config: ExtractConfig,
        encoder: Encoder,
        stats: ExtractionStats,
    ) -> None:
        """Use ``RowEncoder.open``."""
        self.plan = plan
        self.stats = stats
        self._config = config
        self._encoder = encoder
        self._has_warned = False
        self._extractor = StateExtractor(
            encoder, plan, config.batch_tokens, stats, for_prediction=True
        )
        self._tokenizer_lock = threading.Lock()
        self._model_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        plan: Plan,
        *,
        encoder: str | None = None,
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> RowEncoder:
        """Find the encoder of a cache, check that it is the same, and load its weights.

        Args:
            plan: of the cache.
            encoder: folder or id of the encoder, if it has moved since.
            device: auto, cpu, cuda, cuda:N or mps.
            batch_tokens: most tokens of one batch, padding included. The default
                depends on the device.

        Raises:
            ConfigError: the encoder or the decoders of files are not those of the
                cache; or the states were imported.
            NotFoundError: the encoder, or the rows that it was fitted on, are gone.
        """
        with LOADING_LOCK:
            config, opened = reopen(plan, encoder, device, batch_tokens)
        return cls(plan, config, opened, ExtractionStats())

    def encode(
        self, rows: Sequence[str], *, pooling: str, origin: str = "the rows"
    ) -> NDArray[np.float32]:
        """Encode rows, and round their states to the type that the cache stores.

        See ``stream`` for the arguments and errors. Result: (N, L, D).
        """
        [states_NLD] = self.stream([rows], pooling=pooling, origin=origin)
        return states_NLD

    def stream(
        self,
        chunks: Iterable[Sequence[str] | LocatedRows],
        *,
        pooling: str,
        origin: str = "the rows",
    ) -> Iterator[NDArray[np.float32]]:
        """Encode chunk after chunk; the next is prepared while one is encoded.

        Args:
            chunks: rows, in chunks of about 2,048. A row is a text; or a sound or
                picture: a path, the bytes of a file, a picture of Pillow, or
                (samples, rate).
            pooling: a pooling of the cache.
            origin: name of the source of the rows, for messages.

        Yields:
            For every chunk of N rows the states of all layers, (N, L, D), rounded to
            the type that the cache stores.

        Raises:
            DataError: rows that cannot be used, such as empty ones.
            NumericsError: a state cannot be stored, or is not that of the row alone.
            ShortOfMemoryError: too little memory for one row.
        """
        if pooling not in self.plan.pooling:
            raise plugins.unknown("pooling of these rows", pooling, self.plan.pooling)
        # ``stats`` counts the rows of all calls, and other threads may call, too
        num_rows = 0
        num_cut = 0
        # ``_locate`` gives every row its location. A thread prepares the next chunk,
        # which means that it tokenises it, while this one is encoded.
        for prepared in prefetch(
            lambda chunk: self._prepare(chunk, origin), _locate(chunks)
        ):
            if prepared is not None:
                num_rows += len(prepared.inputs.truncated)
                num_cut += sum(prepared.inputs.truncated)
            yield self._encode(prepared, pooling)
        self._warn_of_cut_rows(num_cut, num_rows)
        self._warn_of_doubts()

    def _warn_of_cut_rows(self, num_cut: int, num_rows: int) -> None:
        """Warn if any of these rows is cut."""
        lines = truncation_warning(
            num_rows,
            num_cut,
            self._encoder.max_length,
            self._encoder.unit,
            for_prediction=True,
        )
        warn(lines)

    def _warn_of_doubts(self) -> None:
        """Warn of rows that seem to be unfit, such as unknown tokens, but only once."""
        encoder = self._encoder
        lines = self.stats.doubts(
            noun=encoder.noun,
            max_length=encoder.max_length,
            causal=bool(encoder.acts_causal),
            storage_dtype=self.plan.storage_dtype,
        )
        if lines and not self._has_warned:
            warn(lines)
            self._has_warned = True

    def _prepare(self, chunk: LocatedRows, origin: str) -> PreparedRows | None:
        """Make a chunk of rows ready for the encoder; None if it has no row."""
        if not len(chunk.rows):
            return None
        # rows become cells of a table, which are read as those of a data set are
        kind = self.plan.kind
        cells = [
            _table_cell(row, kind, where)
            for row, where in zip(chunk.rows, chunk.locations, strict=True)
        ]
        rows = rows_from_inputs(
            cells, kind, self._config, origin=origin, locations=chunk.locations
        )
        # Two threads would disturb each other: a tokenizer keeps state while it works.
        # Rows with equal copy keys count as copies of one another.
        with self._tokenizer_lock:
            return self._extractor.prepare(
                rows.inputs, rows.copy_keys(), origin=origin, locations=chunk.locations
            )

    def _encode(
        self, prepared: PreparedRows | None, pooling: str
    ) -> NDArray[np.float32]:
        """States of prepared rows, (N, L, D); None stands for no rows."""
        if prepared is None:
            shape = (0, self.plan.num_layers, self.plan.hidden_size)
            return np.empty(shape, np.float32)
        with self._model_lock:
            # nobody is told of the progress
            encoded = self._extractor.encode(prepared, lambda encoded_rows: None)
            states = self._extractor.checked_states(encoded)[pooling]
        # NumPy has no bfloat16: such states are bits
        if self.plan.storage_dtype == "bfloat16":
            return as_float32(states)
        return states.astype(np.float32)


def _locate(chunks: Iterable[Sequence[str] | LocatedRows]) -> Iterator[LocatedRows]:
    """Give every row a place: its number in all chunks, from 1.

    Chunks whose rows have locations already are passed on; their rows count, too.
    """
    rows_before = 0
    for chunk in chunks:
        if isinstance(chunk, LocatedRows):
            located = chunk
        else:
            first = rows_before + 1
            locations = [f"row {number}" for number in range(first, first + len(chunk))]
            located = LocatedRows(chunk, locations)
        rows_before += len(located.rows)
        yield located


def _table_cell(row: object, kind: str, where: str) -> Any:
    """Turn a row into the cell of a table: a text, a path, or the bytes of a file.

    A picture of Pillow becomes the bytes of a PNG or TIFF file; samples with their rate
    become those of a WAV file. Both keep every number. Other rows, and rows that are
    texts or bytes, stay as they are: the reader of the cell checks them.

    Args:
        row: as the user passes it, see ``RowEncoder.stream``.
        kind: kind of the rows, such as "text".
        where: place of the row, for messages.

    Raises:
        DataError: a sound is neither a path, nor bytes, nor samples with their rate.
    """
    if isinstance(row, PurePath):
        return str(row)
    # only pictures of Pillow have this method
    if kind == "vision" and hasattr(row, "getexif"):
        return _picture_bytes(row)
    if kind != "audio" or isinstance(row, str | bytes):
        return row
    # Hugging Face's datasets give a sound this form
    if isinstance(row, Mapping) and {"array", "sampling_rate"} <= row.keys():
        return _sound_bytes(row["array"], row["sampling_rate"], where)
    if isinstance(row, tuple) and len(row) == 2:
        samples, rate = row
        return _sound_bytes(samples, rate, where)
    raise DataError(
        "a sound has no sampling rate",
        expected="a path, or (samples, rate), such as (array, 16000)",
        found=type(row).__name__,
        where=where,
    )


def _picture_bytes(picture: Any) -> bytes:
    """Write a picture of Pillow to the bytes of a PNG or TIFF file.

    Its EXIF data are written, too: they hold the orientation of the camera, which the
    reader of the file applies.
    """
    file = io.BytesIO()
    # a PNG file cannot hold pixels of every type, such as fractions
    file_format = "PNG" if picture.mode in PNG_MODES else "TIFF"
    picture.save(file, file_format, exif=picture.getexif())
    return file.getvalue()


def _sound_bytes(samples: Any, rate: Any, where: str) -> bytes:
    """Write samples to the bytes of a WAV file.

    Args:
        samples: (T,) or, with several channels, (T, C) or (C, T).
        rate: samples per second.
        where: place of the row, for messages.

    Raises:
        DataError: the array has no samples, other axes, whole numbers other than
            int16 and int32, or fractions far outside of -1 to 1.
    """
    samples_T = _as_fractions(np.asarray(samples), where)
    # a sound has more samples than channels: the longer axis is that of the samples
    if samples_T.ndim == 2 and len(samples_T) < samples_T.shape[1]:
        samples_T = samples_T.T
    if samples_T.ndim not in (1, 2) or not samples_T.size:
        raise DataError(
            "samples are no sound", found=f"shape {samples_T.shape}", where=where
        )
    check_peak(float(np.abs(samples_T).max()), where)

    file = io.BytesIO()
    soundfile = import_decoder("soundfile", "audio")
    soundfile.write(file, samples_T, int(rate), format="WAV", subtype="FLOAT")
    return file.getvalue()


def _as_fractions(samples_T: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Samples as fractions in float32; 16- and 32-bit whole numbers are scaled.

    The type of other whole numbers does not say at which number a sound is loudest: a
    program may hold 16-bit samples as int64.

    Args:
        samples_T: of any type and shape.
        where: place of the row, for messages.

    Raises:
        DataError: the samples have another type.
    """
    if samples_T.dtype.kind == "f":
        # a float64 beyond float32 becomes infinite, and is refused as too large
        with np.errstate(over="ignore"):
            return samples_T.astype(np.float32)
    # an array of a file may have its bytes in the other order
    if samples_T.dtype.newbyteorder("=") not in (np.int16, np.int32):
        raise DataError(
            "samples are no sound",
            expected="fractions from -1 to 1, or int16 or int32",
            found=str(samples_T.dtype),
            where=where,
            hint="of 16-bit samples pass samples.astype('int16')",
        )
    # the smallest number, -32,768 of 16 bits, becomes -1
    fractions_T = samples_T / -float(np.iinfo(samples_T.dtype).min)
    return fractions_T.astype(np.float32)
