"""Rows out of shard files, each of which is hashed, all of it, before its first row is used.

N rows asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.devices import cores
from gaam_cache.errors import CacheError
from gaam_cache.store.digest import hash_file, short_digest
from gaam_cache.store.dtypes import NUMPY_DTYPES, as_float32
from gaam_cache.store.files import DAMAGE
from gaam_cache.store.plan import SHARD_FOLDER, Plan
from gaam_cache.store.shard import Receipt, remedy

MOST_MAPPED = 32  # files at a time: each takes a descriptor, and a cache may have many shards
MAX_THREADS = 8  # more wait for the disk
THREADS_FROM_BYTES = 4 * 2**20  # less is copied before threads have begun


def shard_fault(path: Path, receipt: Receipt) -> str | None:
    """In what the bytes of a shard file, all of them, are not those of its receipt."""
    try:
        found = hash_file(path)
    except DAMAGE as error:
        return f"the file cannot be read: {error}"
    if found == receipt.sha256:
        return None
    found, expected = short_digest(found), short_digest(receipt.sha256)
    return f"the file was changed: its SHA-256 is {found}..., its receipt says {expected}..."


@lru_cache(MOST_MAPPED)
def _mapped(path: Path) -> NDArray[np.uint8]:
    return np.memmap(path, np.uint8, "r")


def arrays_of(path: Path, receipt: Receipt) -> dict[str, NDArray[Any]]:
    """The arrays of a shard file that was hashed, mapped."""
    raw = _mapped(path)  # of other content it would have another name
    return {
        key: raw[spec.offset :][: spec.nbytes].view(NUMPY_DTYPES[spec.dtype]).reshape(spec.shape)
        for key, spec in receipt.datasets.items()
    }


class ShardReader:
    """The shards of one split."""

    def __init__(self, root: Path, plan: Plan, split: str, receipts: Sequence[Receipt]) -> None:
        self._root, self._plan, self._receipts = root, plan, receipts
        self._specs, self._folder = list(plan.shards(split)), (root / SHARD_FOLDER).absolute()
        self._checked = [False] * len(receipts)

    def read(
        self,
        key: str,
        row_N: NDArray[np.int64],
        raw: NDArray[np.uint8],
        keep: slice | NDArray[np.int64],
    ) -> None:
        """Copy rows of ``key`` to (N, bytes of a row), in that order; of them ``keep`` (layers)."""
        order = np.argsort(row_N, kind="stable")
        shard_N = row_N[order] // self._plan.shard_rows
        starts = [0, *(np.flatnonzero(np.diff(shard_N)) + 1).tolist()]
        shards = shard_N[starts].tolist()

        def copy(shard: int, place_N: NDArray[np.int64]) -> None:
            receipt = self._receipts[shard]
            if not self._checked[shard]:
                self._check(shard)
            table = arrays_of(self._folder / receipt.file, receipt)[key]
            rows = _span(row_N[place_N] - self._specs[shard].start)
            places = _span(place_N)
            positions = table.shape[1] if table.ndim > 2 else 1
            entries = table.view(np.uint8).reshape(len(table), positions, -1)
            if not isinstance(rows, slice) and not isinstance(keep, slice):
                rows = rows[:, None]
            found = entries[rows, keep]
            raw[places] = found.reshape(len(found), -1)

        places = np.split(order, starts[1:])
        if raw.nbytes < THREADS_FROM_BYTES and all(self._checked[shard] for shard in shards):
            for task in zip(shards, places, strict=True):
                copy(*task)
            return
        with ThreadPoolExecutor(min(MAX_THREADS, len(cores()), len(shards)), "read") as pool:
            list(pool.map(copy, shards, places))  # the first error cancels the rest

    def _check(self, shard: int) -> None:
        path = self._folder / self._receipts[shard].file
        if (fault := shard_fault(path, self._receipts[shard])) is not None:
            name = self._specs[shard].name
            raise CacheError(
                f"the shard '{name}' is damaged",
                expected="the bytes that its receipt names",
                found=fault,
                where=str(path),
                hint=f"{remedy(self._root, self._plan, name)} (gaam verify lists all damage)",
            )
        self._checked[shard] = True


def _span(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    # numbers that rise by one as a slice, which NumPy copies in one go
    if len(numbers) and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


class ShardedArray:
    """Arrays of several shards, indexed as one along the first axis; use ``Split``.

    Indexing takes integers, slices, arrays of numbers, a mask of rows and ``...``, means what it
    means in NumPy, and returns a NumPy array; only the rows asked for are read. bfloat16 comes back
    as float32, which holds it exactly. A shard is hashed, all of it, when its first row is read.

    Raises:
        CacheError: when read: a shard is damaged; it names the shard and the repair.
    """

    def __init__(
        self,
        shards: ShardReader,
        key: str,
        shape: tuple[int, ...],
        dtype: str,
        keep: NDArray[np.int64] | None = None,
    ) -> None:
        self._shards, self._key, self._whole_shape = shards, key, shape
        self.stored = dtype
        """Type on disk: float16, bfloat16, float32, or of labels and tokens."""
        self._keep = keep
        self.shape = shape if keep is None else (shape[0], len(keep), *shape[2:])
        self.ndim = len(shape)
        self.dtype = np.dtype("<f4" if dtype == "bfloat16" else NUMPY_DTYPES[dtype])

    def __repr__(self) -> str:
        return f"<ShardedArray {self.shape} {self.dtype}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), 64):
            yield from self[start : start + 64]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __dlpack__(self, **asked: Any) -> Any:
        return self[:].__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self[:0].__dlpack_device__()

    def keeping(self, positions: Sequence[int]) -> ShardedArray:
        """The same rows with only these positions of the second axis (layers, from 0).

        Nothing is read yet; later only the bytes at these positions are.
        """
        there = np.arange(self.shape[1]) if self._keep is None else self._keep
        keep = there[np.asarray(positions, dtype=np.int64)]
        return ShardedArray(self._shards, self._key, self._whole_shape, self.stored, keep)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        items = index if isinstance(index, tuple) else (index,)
        if items and items[0] is ...:  # that of rows is needed by itself
            items = items[1:] if len(items) > len(self.shape) else (slice(None), *items)
        first, *others = items or (slice(None),)
        plain = all(isinstance(one, int | np.integer | slice) for one in others)
        if others and plain and not isinstance(others[0], slice) and len(self.shape) > 1:
            layer, *features = others  # only its bytes are read
            found = self.keeping([range(self.shape[1])[layer]])[first]
            return found[(..., 0, *(features or [slice(None)]))]
        row_N: Any = np.arange(len(self))[first]
        flat_N = np.ravel(row_N)
        out = np.empty((len(flat_N), *self.shape[1:]), NUMPY_DTYPES[self.stored])
        if out.size:
            self.read_into(flat_N, out.reshape(len(flat_N), -1).view(np.uint8))
        if self.stored == "bfloat16":
            out = as_float32(out)
        rows: Any = slice(None)
        if not isinstance(first, slice):  # as NumPy has it, arrays of numbers go in step
            rows = np.arange(len(out)).reshape(np.shape(row_N))
        return out[(rows, *others)]

    def read_into(self, row_N: NDArray[np.int64], raw: NDArray[np.uint8]) -> None:
        """Copy rows as they are stored (bfloat16 as its bits) to (N, bytes of a row), C-contiguous.

        Row numbers are not negative; ascending ones are read in large pieces. Raises as indexing.
        """
        if raw.size:
            keep = slice(None) if self._keep is None else _span(self._keep)
            self._shards.read(self._key, row_N, raw, keep)
