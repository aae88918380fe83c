"""Predict classes of new rows with the decoders of a finished run.

S seeds, N rows, L layers, D hidden size, C classes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gaam_cache import devices
from gaam_cache.errors import ConfigError, DataError, GaamError
from gaam_cache.store.encoding import Encoding
from gaam_decoder.training.group import EVAL_BATCH_SIZE, rows_at_once
from gaam_decoder.use.ensemble import Ensemble
from gaam_decoder.use.predictions import Predictions

if TYPE_CHECKING:
    from gaam_cache.encode import Placed, RowEncoder

CHUNK_ROWS = 2048
"""Rows that are encoded together, as many as a shard of a cache has at most."""
CPU_BATCH_SIZE = 16
"""Rows of a batch of the decoders on a CPU. Measured on one core with states of 6 x 384: with the
head conv a row takes half as long as in batches of 32 and more, and as long with linear."""
ORIGIN = "the rows"
"""What rows are called in messages whose origin nobody names."""


class Predictor:
    """Decoders of a run, and the encoder that its rows were encoded by.

    The encoder is looked for when the first rows are to be encoded; states need none. Several
    threads may use one, as those of a server do: they take turns.

    Attributes:
        class_names: in the order of the columns of probabilities.
        seeds: whose decoders are averaged.
        temperatures: by which the logits of each are divided; empty: by none.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        class_names: Sequence[str],
        seeds: Sequence[int],
        layers: Sequence[int],
        shape: tuple[int, int],
        pooling: str,
        encoding: Encoding | GaamError,
        temperatures: Sequence[float] = (),
        encoder: str | None = None,
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        """Use ``gaam_decoder.load``.

        Args:
            ensemble: the decoders.
            class_names: of C classes.
            seeds: S, in order.
            layers: those that the decoders learned from, by their place among all, from 0.
            shape: L and D of all layers of a row.
            pooling: of their states.
            encoding: how rows are encoded, or why nobody knows.
            temperatures: by which the logits of every seed are divided; empty: by none.
            encoder: folder or id of the encoder, where it is not where it was.
            device: auto, cpu, cuda, cuda:N or mps.
            batch_tokens: of a batch of the encoder; None: what suits the device.
        """
        self.class_names = tuple(class_names)
        self.seeds = tuple(seeds)
        self.temperatures = tuple(temperatures)
        self.pooling = pooling
        self._device = devices.resolve_device(device)
        self._ensemble = ensemble.to(self._device)
        self._layers = list(layers)
        self._shape = shape
        self._encoding = encoding
        self._encoder = encoder
        self._batch_tokens = batch_tokens
        self._opened: RowEncoder | None = None
        self._opening = threading.Lock()

    @property
    def encoding(self) -> Encoding | None:
        """How rows are encoded; None where others made the states.

        Raises:
            GaamError: neither the run says so, nor a cache that can be found.
        """
        if isinstance(self._encoding, GaamError):
            raise self._encoding
        return None if self._encoding.imported else self._encoding

    @property
    def _rows(self) -> RowEncoder:
        from gaam_cache.encode import RowEncoder

        if isinstance(self._encoding, GaamError):
            raise self._encoding
        with self._opening:
            if self._opened is None:
                self._opened = RowEncoder.open(
                    self._encoding,
                    encoder=self._encoder,
                    device=str(self._device),
                    batch_tokens=self._batch_tokens,
                )
            return self._opened

    def predict(self, rows: Sequence[str]) -> list[str]:
        """The name of the most probable class of every row; see ``predictions``."""
        return self.predictions(rows).labels

    def predict_proba(self, rows: Sequence[str]) -> NDArray[np.float64]:
        """Probabilities of all classes of every row, (N, C); see ``predictions``."""
        return self.predictions(rows).probabilities_NC

    def predictions(self, rows: Sequence[str], *, origin: str = ORIGIN) -> Predictions:
        """Encode rows as those of the cache were, and predict their classes.

        Args:
            rows: N texts, or paths of N sounds or pictures.
            origin: what to call where they are from, in messages.

        Raises:
            ConfigError: another encoder than that of the run, or none that is known.
            DataError: rows that cannot be used, such as empty ones.
            NumericsError: states or logits that are not finite, or not those of a row alone.
        """
        if isinstance(rows, str):
            raise ConfigError("rows are a list", expected="[text, ...]", found="one string")
        chunks = (rows[at : at + CHUNK_ROWS] for at in range(0, len(rows), CHUNK_ROWS))
        return Predictions.joined(list(self.stream(chunks, origin=origin)), self.class_names)

    def stream(
        self, chunks: Iterable[Sequence[str] | Placed], *, origin: str = ORIGIN
    ) -> Iterator[Predictions]:
        """The same of chunk after chunk; the next one is made ready while one is encoded.

        What a chunk gives depends on nothing but its rows.

        Args:
            chunks: of some 2,048 rows each; in smaller ones more positions are padding. Rows of one
                that says where they stand are named so in messages, others by their number.
            origin: what to call where the rows are from, in messages.
        """
        from gaam_cache.encode import Placed

        waiting: deque[Sequence[str]] = deque()

        def placed() -> Iterator[Placed]:
            row = 0
            for chunk in chunks:
                one = Placed.of(chunk, row)
                waiting.append(one.places)
                yield one
                row += len(one)

        for states_NLD in self._rows.stream(placed(), pooling=self.pooling, origin=origin):
            places = [f"{origin}, {place}" for place in waiting.popleft()]
            yield self._predicted(states_NLD, places)

    def predict_states(self, states: Any) -> Predictions:
        """Predict from states, such as ``cache["test"].embeddings``.

        Shape:
            (N, L, D): all layers of the cache, of the run's pooling.

        Args:
            states: anything with that shape that gives rows as floating-point arrays when it is
                sliced; a split of a cache need not fit into memory.

        Raises:
            DataError: another shape or type, or a state that is masked or not finite in float32.
        """
        if isinstance(states, torch.Tensor):
            states = states.detach().float().cpu().numpy()
        elif not hasattr(states, "shape"):
            states = np.asarray(states)
        found = tuple(states.shape)
        if len(found) != 3 or found[1:] != self._shape:
            raise DataError(
                "states of another shape",
                expected=f"(rows, {self._shape[0]}, {self._shape[1]}): all layers of the cache",
                found=str(found),
            )
        parts = []
        for first in range(0, len(states), CHUNK_ROWS):
            given_NLD = states[first : first + CHUNK_ROWS]
            if np.ma.is_masked(given_NLD):
                raise DataError("states are masked", expected="a number everywhere")
            part_NLD = np.asarray(given_NLD)
            if part_NLD.dtype.kind != "f":
                raise DataError(
                    "states are no floating-point numbers",
                    expected="float16, float32 or float64",
                    found=str(part_NLD.dtype),
                )
            with np.errstate(over="ignore"):  # what is too large is infinite, and said below
                part_NLD = part_NLD.astype(np.float32, copy=False)
            finite_N = np.isfinite(part_NLD).all((1, 2))
            if not finite_N.all():
                raise DataError(
                    "a state is not finite in float32",
                    where=f"row {first + int(finite_N.argmin()) + 1}",
                )
            places = [f"row {first + row + 1}" for row in range(len(part_NLD))]
            parts.append(self._predicted(part_NLD, places))
        return Predictions.joined(parts, self.class_names)

    @torch.inference_mode()
    def _predicted(self, states_NLD: NDArray[Any], places: Sequence[str]) -> Predictions:
        x_NLD = torch.from_numpy(np.ascontiguousarray(states_NLD[:, self._layers], np.float32))
        numbers = x_NLD[0].numel() * len(self.seeds) if len(x_NLD) else 1
        most = CPU_BATCH_SIZE if self._device.type == "cpu" else EVAL_BATCH_SIZE
        size = min(most, rows_at_once(self._device.type, numbers))
        parts = [self._ensemble(x.to(self._device)).cpu().numpy() for x in x_NLD.split(size)]
        none_SNC = np.empty((len(self.seeds), 0, len(self.class_names)), np.float32)
        logits_SNC = np.concatenate([none_SNC, *parts], axis=1) if len(x_NLD) else none_SNC
        return Predictions.of(
            logits_SNC, self.class_names, temperatures=self.temperatures, places=places
        )
