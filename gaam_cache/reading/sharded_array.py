"""Arrays that lie in many shards, as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.format.receipt import NUMPY_DTYPES
from gaam_cache.reading.shard_reader import Run, ShardReader, consecutive


class ShardedArray:
    """Arrays of several shards, indexed as one along the first axis.

    Indexing takes integers, slices, arrays of numbers, a mask of rows and ``...``, means what it
    means in NumPy, and returns a NumPy array; only the rows asked for are read. bfloat16 comes back
    as float32, which holds it exactly. A shard is checked, all of it, when its first row is read.
    """

    def __init__(
        self,
        shards: ShardReader,
        key: str,
        shape: tuple[int, ...],
        dtype: str,
        keep: NDArray[np.int64] | None = None,
    ) -> None:
        """Use ``Split``; ``dtype`` as in receipts, ``keep`` as in ``keeping``."""
        self._shards = shards
        self._key = key
        self._whole_shape = shape
        self.stored = dtype
        """Type on disk: float16, bfloat16, float32, or of labels and tokens."""
        self._keep = keep
        self.shape: tuple[int, ...] = shape
        stored = np.dtype(NUMPY_DTYPES[dtype])
        self.dtype: np.dtype[Any] = np.dtype(np.float32) if dtype == "bfloat16" else stored
        entry = stored.itemsize * math.prod(shape[2:])  # bytes of one layer
        self._runs = [Run(0, 0, entry * math.prod(shape[1:2]))]
        if keep is not None:
            self.shape = (shape[0], len(keep), *shape[2:])
            self._runs = [
                Run(first * entry, place * entry, count * entry)
                for first, place, count in consecutive(keep, np.arange(len(keep)))
            ]

    def __repr__(self) -> str:
        """Shape and type."""
        return f"<ShardedArray {self.shape} {self.dtype}>"

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def keeping(self, positions: Sequence[int]) -> ShardedArray:
        """The same rows with only these positions of the second axis (layers, from 0).

        Nothing is read yet; later only the bytes at these positions are.
        """
        all_there = np.arange(self.shape[1]) if self._keep is None else self._keep
        keep = all_there[np.asarray(positions, dtype=np.int64)]
        return ShardedArray(self._shards, self._key, self._whole_shape, self.stored, keep)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Rows, in the order asked for.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
        """
        first, *others = self._spelled_out(index)
        plain = all(isinstance(one, int | np.integer | slice) for one in others)
        if others and plain and not isinstance(others[0], slice) and len(self.shape) > 1:
            layer, *features = others  # only its bytes are read
            found = self.keeping([range(self.shape[1])[layer]])[first]
            return found[(..., 0, *(features or [slice(None)]))]
        row_N = self._row_numbers(first)
        out = self._gather(np.ravel(row_N))
        rows: Any = slice(None)
        if not isinstance(first, slice):  # as NumPy has it, arrays of numbers go in step
            rows = np.arange(len(out)).reshape(np.shape(row_N))
        return out[(rows, *others)]

    def _spelled_out(self, index: Any) -> tuple[Any, ...]:
        """The same index, beginning with that of rows.

        Raises:
            IndexError: more axes than there are, or a new one.
        """
        items = index if isinstance(index, tuple) else (index,)
        if any(one is None or isinstance(one, bool | np.bool_) for one in items):
            raise IndexError("rows, layers and features are named by numbers, slices or arrays")
        gaps = [place for place, one in enumerate(items) if one is ...]
        if len(gaps) > 1 or len(items) - len(gaps) > len(self.shape):
            raise IndexError(f"{len(items)} indices for the {len(self.shape)} axes of {self!r}")
        if gaps == [0]:  # that of rows is needed by itself
            items = items[1:] if len(items) > len(self.shape) else (slice(None), *items)
        return items or (slice(None),)

    def _row_numbers(self, index: Any) -> Any:
        plain = isinstance(index, np.ndarray) and index.ndim == 1 and index.dtype.kind == "i"
        if plain and (index.size == 0 or (index.min() >= 0 and index.max() < len(self))):
            return index  # every training batch: no work that grows with the number of rows
        return np.arange(len(self))[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole array in memory."""
        return np.asarray(self[:], dtype=dtype)

    def read_into(self, row_N: NDArray[np.int64], raw: NDArray[np.uint8]) -> None:
        """Copy rows as they are stored, without a second copy on the way.

        Args:
            row_N: row numbers, not negative; ascending ones are read in large pieces.
            raw: where their bytes go, (N, bytes of a row), C-contiguous; bfloat16 as its bits.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
        """
        if raw.size:
            self._shards.read(self._key, row_N, raw, self._runs)

    def _gather(self, row_N: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(row_N), *self.shape[1:]), NUMPY_DTYPES[self.stored])
        if out.size:
            self.read_into(row_N, out.reshape(len(row_N), -1).view(np.uint8))
        if self.stored == "bfloat16":
            return (out.astype(np.uint32) << 16).view(np.float32)
        return out
