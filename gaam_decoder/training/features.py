"""States of rows on their way to a decoder: on the accelerator, in memory, or on disk.

S seeds, B batch, N rows, M rows of a block, L layers, D hidden size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaam_cache import devices
from gaam_cache.cache import ShardedArray, Split
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.memory import free_on
from gaam_decoder.training.protocol import Rows

PREFETCH = 3
"""Batches that are gathered ahead where the rows are not on the device."""
SLICE_BYTES = 2**26
"""Of the piece of memory through which rows go to a GPU."""
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
"""States are kept as they are stored; a step makes float32 of a batch, which holds them all."""
MEMORY_SHARE = 0.5
"""Of the free memory for rows, unless asked for otherwise; a group of seeds takes up to 0.4."""
BLOCKS = 2
"""Of a window at once: one that is computed with and one that is read."""

Place = Literal["cuda", "memory", "disk"]


class Features:
    """States of rows as they are stored; of a split, or of ``held_N`` of its rows, ascending."""

    def __init__(
        self,
        array: ShardedArray,
        device: torch.device,
        place: Place = "memory",
        held_N: Rows | None = None,
    ) -> None:
        self.device, self.place, self.shape = device, place, array.shape
        self.dtype = TYPES[array.stored]
        self.row_bytes = math.prod(array.shape[1:]) * self.dtype.itemsize
        self.resident: Tensor | None = None
        self._array, self._held_N = array, held_N
        if place != "disk":
            row_N = np.arange(len(array)) if held_N is None else held_N
            where = torch.device("cpu") if place == "memory" else device
            resident = torch.empty(len(row_N), *self.shape[1:], dtype=self.dtype, device=where)
            self.resident = self._read(row_N, resident)

    @property
    def on_device(self) -> bool:
        """Whether the rows are where they are computed with."""
        return self.resident is not None and self.resident.device.type == self.device.type

    def batches(self, rows: Rows, size: int) -> Iterator[Tensor]:
        """For every ``size`` entries along the last axis of ``rows``: those rows, as stored.

        Gathered once before anything is computed: arithmetic that fetched its operands from rows
        all over the memory would wait for it. Rows that are not on the device are gathered ahead by
        a thread.

        Shape:
            rows (N,) or (S, N); each batch (B, L, D) or (S, B, L, D).
        """
        rows = self._places(rows)
        starts = range(0, rows.shape[-1], size)
        if self.resident is not None and self.on_device:
            place = torch.from_numpy(rows).to(self.device)
            for start in starts:
                yield taken(self.resident, place[..., start : start + size])
            return
        parts = (partial(self._gather, rows[..., start : start + size]) for start in starts)
        for batch in _ahead(parts, PREFETCH):
            yield batch.to(self.device, non_blocking=True)

    def blocks(self, rows: Sequence[Rows]) -> Iterator[Tensor]:
        """The rows of every block (each ascending) on the device, (M, L, D), until the next.

        Each is read once, in one go, by a thread, while the one before it is computed with: memory
        holds two.
        """
        shape = max(map(len, rows), default=0), *self.shape[1:]
        # written over in turn: new memory would come page by page, all zeroed
        buffers = [torch.empty(shape, dtype=self.dtype, device=self.device) for _ in rows[:BLOCKS]]
        parts = (
            partial(self._read, self._places(row_M), buffers[number % BLOCKS][: len(row_M)])
            for number, row_M in enumerate(rows)
        )
        return _ahead(parts, BLOCKS - 1)

    def _places(self, rows: Rows) -> Rows:
        """Where rows lie among those that are held; their numbers where these are all."""
        return rows if self._held_N is None else np.searchsorted(self._held_N, rows)

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
        if out.device.type == "cpu":
            self._read_here(row_N, out)
            return out
        size = max(1, SLICE_BYTES // self.row_bytes)
        shape = min(size, len(row_N)), *self.shape[1:]
        piece = torch.empty(shape, dtype=self.dtype, pin_memory=out.is_cuda)
        for start in range(0, len(row_N), size):
            part_N = row_N[start : start + size]
            self._read_here(part_N, piece[: len(part_N)])
            # waits until it is there: the piece is written over next
            out[start : start + size].copy_(piece[: len(part_N)])
        return out

    def _read_here(self, row_N: Rows, out: Tensor) -> None:
        if self.resident is not None:
            torch.index_select(self.resident, 0, torch.from_numpy(row_N), out=out)
        else:
            self._array.read_into(row_N, out.view(torch.uint8).numpy().reshape(-1, self.row_bytes))


def taken(source: Tensor, place: Tensor) -> Tensor:
    """Rows of a tensor, (..., L, D), at places of any shape."""
    rows = source.index_select(0, place.flatten())
    return rows.view(*place.shape, *source.shape[1:])


def _ahead(parts: Iterator[Callable[[], Tensor]], most: int) -> Iterator[Tensor]:
    """What each of these makes, in order; a thread is at most so many of them ahead."""
    with ThreadPoolExecutor(1) as thread:
        begun: deque[Future[Tensor]] = deque()
        for part in parts:
            begun.append(thread.submit(part))
            if len(begun) > most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


class Loaded:
    """Features of the rows of a sweep, held for its next item; in a share of the free memory."""

    def __init__(self, share: float = MEMORY_SHARE) -> None:
        self.told: set[str] = set()
        """What was said of the order of rows, to be said once."""
        self._share = share
        self._held: dict[Hashable, Features] = {}

    def get(
        self, wanted: Sequence[tuple[Split, Rows | None]], recipe: Recipe, device: torch.device
    ) -> list[Features]:
        """Features of what is wanted: on the device where they fit, else in memory, or on disk.

        Of a split all rows, which the folds of a sweep share, or of a budget its own, ascending.
        """
        keys: list[Hashable] = [
            (split.name, recipe.pool, recipe.layers, None if held_N is None else held_N.tobytes())
            for split, held_N in wanted
        ]
        found: list[Features] = []
        for key, (split, held_N) in zip(keys, wanted, strict=True):
            if key not in self._held:
                array = split.pooled(recipe.pool)
                if recipe.layers is not None:
                    array = array.keeping([n - split.first_layer for n in recipe.layers])
                count = len(array) if held_N is None else len(held_N)
                size = count * math.prod(array.shape[1:]) * TYPES[array.stored].itemsize
                if (place := self._place(size, device, keys)) == "disk":
                    found.append(Features(array, device, place))
                    continue
                self._held[key] = Features(array, device, place, held_N)
            found.append(self._held[key])
        return found

    def _place(self, size: int, device: torch.device, keep: list[Hashable]) -> Place:
        """Where so many bytes fit, if need be in the place of rows of other items."""
        places: dict[Place, torch.device] = {"cuda": device} if device.type == "cuda" else {}
        for place, where in (places | {"memory": torch.device("cpu")}).items():
            if size > self._room(where):
                self._held = {key: held for key, held in self._held.items() if key in keep}
                devices.give_back(device)  # torch would keep for itself what was let go
            if size <= self._room(where):
                return place
        return "disk"

    def _room(self, where: torch.device) -> float:
        """Bytes that may still be taken."""
        residents = (one.resident for one in self._held.values() if one.resident is not None)
        held = sum(one.nbytes for one in residents if one.device.type == where.type)
        return self._share * (free_on(where) + held) - held
