"""Rows of a cache on their way to a decoder.

S seeds, B batch, N rows, M rows of a block, L layers, D hidden size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.cache import ShardedArray
from gaam_decoder.training.rows.protocol import Rows

PREFETCH = 3
"""Batches that are gathered ahead where the rows are not on the device."""
SLICE_BYTES = 2**26
"""Of the piece of memory through which rows go to a GPU."""
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
"""States are kept as they are stored; a step makes float32 of a batch, which holds them all."""

Place = Literal["cuda", "memory", "disk"]


class Features:
    """States of rows, as they are stored.

    Attributes:
        place: where the rows are.
        resident: those that are held, on the device or in memory; None where they are on disk.
    """

    def __init__(
        self,
        array: ShardedArray,
        device: torch.device,
        place: Place = "memory",
        held_N: Rows | None = None,
    ) -> None:
        """Load rows to where they are to be.

        Args:
            array: states of a split.
            device: what computes.
            place: of the rows.
            held_N: the rows that will be asked for, ascending, where they are not all.
        """
        self.device = device
        self.place = place
        self.shape = array.shape
        self.dtype = TYPES[array.stored]
        self.resident: Tensor | None = None
        self._array = array
        self._held_N = held_N
        if place != "disk":
            row_N = np.arange(len(array)) if held_N is None else held_N
            where = torch.device("cpu") if place == "memory" else device
            self.resident = torch.empty(
                (len(row_N), *self.shape[1:]), dtype=self.dtype, device=where
            )
            self._read(row_N, self.resident)

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def on_device(self) -> bool:
        """Whether the rows are where they are computed with."""
        return self.resident is not None and self.resident.device.type == self.device.type

    def places(self, rows: Rows) -> Rows:
        """Where rows lie among those that are held; their numbers where these are all."""
        return rows if self._held_N is None else np.searchsorted(self._held_N, rows)

    def batches(self, rows: Rows, size: int) -> Iterator[Tensor]:
        """For every ``size`` entries along the last axis of ``rows``: those rows, as stored.

        Gathered once before anything is computed: arithmetic that fetched its operands from rows
        all over the memory would wait for it. Rows that are not on the device are gathered ahead by
        a thread.

        Shape:
            rows (N,) or (S, N); each batch (B, L, D) or (S, B, L, D).
        """
        rows = self.places(rows)
        starts = range(0, rows.shape[-1], size)
        if self.resident is not None and self.on_device:
            place = torch.from_numpy(rows).to(self.device)
            for start in starts:
                yield taken(self.resident, place[..., start : start + size])
            return
        with ThreadPoolExecutor(1) as gatherer:
            ahead: deque[Future[Tensor]] = deque()
            for start in starts:
                ahead.append(gatherer.submit(self._gather, rows[..., start : start + size]))
                if len(ahead) > PREFETCH:
                    yield ahead.popleft().result().to(self.device, non_blocking=True)
            while ahead:
                yield ahead.popleft().result().to(self.device, non_blocking=True)

    def blocks(self, rows: Sequence[Rows]) -> Iterator[Tensor]:
        """The rows of every block on the device, (M, L, D), until the next is asked for.

        Each is read once, in one go, by a thread, while the one before it is computed with: memory
        holds two.

        Args:
            rows: of every block, ascending.
        """
        shape = max(map(len, rows), default=0), *self.shape[1:]
        # written over in turn: new memory would come page by page, all zeroed
        buffers = [torch.empty(shape, dtype=self.dtype, device=self.device) for _ in rows[:2]]
        with ThreadPoolExecutor(1, "block") as reader:
            ahead: Future[Tensor] | None = None
            for number in range(len(rows) + 1):
                ready = ahead.result() if ahead is not None else None
                if number < len(rows):
                    into = buffers[number % 2][: len(rows[number])]
                    ahead = reader.submit(self._read, self.places(rows[number]), into)
                if ready is not None:
                    yield ready

    def _gather(self, wanted: Rows) -> Tensor:
        if self.resident is not None:
            block = taken(self.resident, torch.from_numpy(wanted))
        else:
            # by NumPy: aligned as torch wants it, no freed block would do for the next
            raw = np.empty((wanted.size, self.row_bytes), np.uint8)
            self._array.read_into(wanted.reshape(-1), raw)
            block = torch.from_numpy(raw).view(self.dtype).view(*wanted.shape, *self.shape[1:])
        return block.pin_memory() if self.device.type == "cuda" else block

    def _read(self, row_N: Rows, out: Tensor) -> Tensor:
        """Fill ``out`` with rows and return it; on a GPU through one small piece of memory."""
        if self.resident is not None and self.resident is not out:
            source = self.resident

            def read(part_N: Rows, into: Tensor) -> None:
                torch.index_select(source, 0, torch.from_numpy(part_N), out=into)
        else:

            def read(part_N: Rows, into: Tensor) -> None:
                self._array.read_into(part_N, self._bytes_of(into))

        if out.device.type == "cpu":
            read(row_N, out)
            return out
        size = max(1, SLICE_BYTES // self.row_bytes)
        shape = min(size, len(row_N)), *self.shape[1:]
        piece = torch.empty(shape, dtype=self.dtype, pin_memory=out.is_cuda)
        for start in range(0, len(row_N), size):
            part = row_N[start : start + size]
            read(part, piece[: len(part)])
            # waits until it is there: the piece is written over next
            out[start : start + size].copy_(piece[: len(part)])
        return out

    def _bytes_of(self, states: Tensor) -> NDArray[np.uint8]:
        """The memory of rows on the CPU, (N, bytes of a row)."""
        raw: NDArray[np.uint8] = states.view(torch.uint8).numpy().reshape(-1, self.row_bytes)
        return raw


def taken(source: Tensor, place: Tensor) -> Tensor:
    """Rows of a tensor, (..., L, D), at places of any shape."""
    rows = source.index_select(0, place.flatten())
    return rows.view(*place.shape, *source.shape[1:])
