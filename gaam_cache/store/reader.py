"""The read side: a cache on disk as arrays, all shards of a split as one.

N rows asked for. A shard is hashed, all of it, before its first row is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import cores
from gaam_cache.common.errors import CacheError
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.plugins import unknown
from gaam_cache.store.dtypes import NUMPY_DTYPES, as_float32, unpack_strings
from gaam_cache.store.plan import Plan, read_plan
from gaam_cache.store.shard import (
    Receipt,
    check_content,
    column_key,
    embeddings_key,
    map_arrays,
    missing_shards,
    read_receipt,
)

MAX_THREADS = 8  # more wait for the disk
THREADS_FROM_BYTES = 4 * 2**20  # less is copied before threads have begun


class ShardedArray:
    """Arrays of several shards, indexed as one along the first axis.

    Indexing takes integers, slices, arrays of numbers, a mask of rows and ``...``, means what it
    means in NumPy, and returns a NumPy array; only the rows asked for are read. bfloat16 comes back
    as float32, which holds it exactly.

    Raises:
        CacheError: when read: a shard is damaged; it names the shard and the repair.
    """

    def __init__(
        self, split: Split, key: str, keep: NDArray[np.int64] | None = None
    ) -> None:
        spec = split.receipts[0].datasets[key]
        self._split, self._key, self._keep = split, key, keep
        self.stored = spec.dtype
        """Type on disk: float16, bfloat16, float32, or of labels and tokens."""
        self.shape = (len(split), *spec.shape[1:])
        if keep is not None:
            self.shape = (len(split), len(keep), *spec.shape[2:])
        self.ndim = len(self.shape)
        self.dtype = np.dtype(
            "<f4" if spec.dtype == "bfloat16" else NUMPY_DTYPES[spec.dtype]
        )

    def __repr__(self) -> str:
        return f"<ShardedArray {self.shape} {self.dtype}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), 64):
            yield from self[start : start + 64]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __dlpack__(self, **asked: Any) -> Any:  # torch makes a tensor of it at once
        return self[:].__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self[:0].__dlpack_device__()

    def keeping(self, positions: Sequence[int]) -> ShardedArray:
        """The same rows with only these positions of the second axis (layers, from 0).

        Nothing is read yet; later only the bytes at these positions are.
        """
        there = np.arange(self.shape[1]) if self._keep is None else self._keep
        return ShardedArray(
            self._split, self._key, there[np.asarray(positions, dtype=np.int64)]
        )

    def __getitem__(self, index: Any) -> NDArray[Any]:
        items = index if isinstance(index, tuple) else (index,)
        if items and items[0] is ...:  # that of rows is needed by itself
            items = items[1:] if len(items) > len(self.shape) else (slice(None), *items)
        first, *others = items or (slice(None),)
        plain = all(isinstance(one, int | np.integer | slice) for one in others)
        if (
            others
            and plain
            and not isinstance(others[0], slice)
            and len(self.shape) > 1
        ):
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
        if not isinstance(
            first, slice
        ):  # as NumPy has it, arrays of numbers go in step
            rows = np.arange(len(out)).reshape(np.shape(row_N))
        return out[(rows, *others)]

    def read_into(self, row_N: NDArray[np.int64], raw: NDArray[np.uint8]) -> None:
        """Copy rows as they are stored (bfloat16 as its bits) to (N, bytes of a row), C-contiguous.

        Row numbers are not negative; ascending ones are read in large pieces. Raises as indexing.
        """
        if not raw.size:
            return
        keep = slice(None) if self._keep is None else _span(self._keep)
        order = np.argsort(row_N, kind="stable")
        shard_N = row_N[order] // self._split.shard_rows
        starts = [0, *(np.flatnonzero(np.diff(shard_N)) + 1).tolist()]
        shards = shard_N[starts].tolist()

        def copy(shard: int, place_N: NDArray[np.int64]) -> None:
            table = self._split.arrays(shard)[self._key]
            rows, places = (
                _span(row_N[place_N] % self._split.shard_rows),
                _span(place_N),
            )
            positions = table.shape[1] if table.ndim > 2 else 1
            entries = table.view(np.uint8).reshape(len(table), positions, -1)
            if not isinstance(rows, slice) and not isinstance(keep, slice):
                rows = rows[:, None]
            found = entries[rows, keep]
            raw[places] = found.reshape(len(found), -1)

        places = np.split(order, starts[1:])
        if raw.nbytes < THREADS_FROM_BYTES and all(
            self._split.checked[shard] for shard in shards
        ):
            for task in zip(shards, places, strict=True):
                copy(*task)
            return
        with ThreadPoolExecutor(
            min(MAX_THREADS, len(cores()), len(shards)), "read"
        ) as pool:
            list(pool.map(copy, shards, places))  # the first error cancels the rest


def _span(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    # numbers that rise by one as a slice, which NumPy copies in one go
    if len(numbers) and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


class Split:
    """One split of a cache, as a ``DataLoader`` takes it too: (states in float32, label).

    Nothing is read before it is asked for; a ``DataLoader`` asks for a batch at once.
    """

    def __init__(
        self, root: Path, plan: Plan, name: str, receipts: list[Receipt]
    ) -> None:
        """Use ``EmbeddingCache[name]``."""
        self.name, self.class_names = name, plan.class_names
        self.first_layer = (
            plan.first_layer
        )  # number of the first layer of its states: 0 or 1
        self.labelled = name not in plan.unlabelled
        """Whether the classes of its rows are known; else every label is -1."""
        self.truncated = sum(receipt.truncated for receipt in receipts)
        """Number of rows that were cut at the maximum length."""
        self.nbytes = sum(receipt.bytes for receipt in receipts)  # bytes on disk
        self.receipts, self.shard_rows = receipts, plan.shard_rows
        self.checked = [False] * len(receipts)  # shards that were hashed
        self._root, self._plan = root, plan

    def __repr__(self) -> str:
        return f"<Split '{self.name}': {len(self):,} rows>"

    def __len__(self) -> int:
        return self._plan.rows[self.name]

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        """States (num_layers, hidden_size) of the first pooling, and label, of a row."""
        return self.__getitems__([range(len(self))[row]])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        """Several rows with one look at the shards."""
        import torch

        row_B = np.asarray(rows, np.int64)
        states_BLD = torch.from_numpy(
            self.embeddings[row_B].astype(np.float32, copy=False)
        )
        return list(zip(states_BLD, torch.from_numpy(self.labels[row_B]), strict=True))

    def arrays(self, shard: int) -> dict[str, NDArray[Any]]:
        """The arrays of a shard, mapped; its file is hashed before the first look at it."""
        receipt = self.receipts[shard]
        if not self.checked[shard]:
            check_content(self._root, self._plan, receipt)
            self.checked[shard] = True
        return map_arrays(self._root, receipt)

    @cached_property
    def embeddings(self) -> ShardedArray:
        """Pooled states, (rows, num_layers, hidden_size); the first pooling of the cache.

        Index 0 of the layers is the first that is kept: ``layer`` counts as ``--layers`` does.
        """
        return self.pooled(self._plan.pooling[0])

    def layer(self, number: int) -> NDArray[Any]:
        """States of one layer, by its number in the encoder, from 1: (rows, hidden_size)."""
        there = range(self.first_layer, self.first_layer + self._plan.num_layers)
        if number not in there:
            raise unknown("layer", str(number), map(str, there), where=str(self._root))
        return self.embeddings[:, there.index(number)]

    def pooled(self, pooling: str) -> ShardedArray:
        """Pooled states of a named pooling, (rows, num_layers, hidden_size).

        Raises:
            ConfigError: the cache does not hold that pooling.
        """
        if pooling not in self._plan.pooling:
            raise unknown("pooling", pooling, self._plan.pooling, where=str(self._root))
        return ShardedArray(self, embeddings_key(self._plan, pooling))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class number of every row, (rows,); ``class_names`` has their names."""
        return ShardedArray(self, "label")[:]

    @cached_property
    def num_tokens(self) -> NDArray[np.int32]:
        """Tokens of every row after truncation, (rows,)."""
        return ShardedArray(self, "num_tokens")[:]

    def column(self, name: str) -> list[str]:
        """A kept column, one string per row.

        Raises:
            ConfigError: the cache keeps no such column.
        """
        if name not in self._plan.columns:
            raise unknown("column", name, self._plan.columns, where=str(self._root))
        return unpack_strings(ShardedArray(self, column_key(name))[:])


class EmbeddingCache(Mapping[str, Split]):
    """A complete cache; ``cache["train"]`` is a split.

    >>> cache = gaam_cache.open_cache("cache")
    >>> {name: len(split.labels) for name, split in cache.items()}
    {'train': 60, 'test': 30}
    """

    def __init__(self, root: Path) -> None:
        """Use ``open_cache``."""
        self.root, self.plan = root, read_plan(root)
        self.fingerprint = (
            self.plan.fingerprint
        )  # hash of everything that decides the numbers
        self.class_names = self.plan.class_names
        """Names of the classes; a label is an index into them."""
        self.num_layers, self.hidden_size = self.plan.num_layers, self.plan.hidden_size
        """Layers of the encoder that are kept, and its hidden size."""
        self.first_layer = self.plan.first_layer
        """Number of the first of them: 0 where that is the encoder's input, else 1."""
        self.columns = tuple(self.plan.columns)  # names of the kept columns
        self.unlabelled = self.plan.unlabelled  # splits without labels: to predict on
        if missing := missing_shards(root, self.plan):
            raise CacheError(
                "the cache is incomplete",
                found=f"{len(missing)} of {self.plan.num_shards} shards are missing, "
                f"first {missing[0]}",
                where=str(root),
                hint=f"run the {self.plan.maker} that made it again: it goes on",
            )
        self._splits = {}
        for name in self.plan.rows:
            receipts = [
                read_receipt(root, self.plan, one) for one in self.plan.shards(name)
            ]
            self._splits[name] = Split(root, self.plan, name, receipts)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.plan.rows.items())
        about = (
            f"{self.plan.encoder_label}, {self.num_layers} layers x {self.hidden_size}"
        )
        return f"<EmbeddingCache '{shown_path(self.root)}': {about}, {rows} rows>"

    def __getitem__(self, split: str) -> Split:
        """The split of that name.

        Raises:
            ConfigError: the cache has no such split; lists those it has.
        """
        if split not in self._splits:
            raise unknown("split", split, self._splits, where=str(self.root))
        return self._splits[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __contains__(self, split: object) -> bool:
        return split in self._splits

    def __len__(self) -> int:
        return len(self._splits)


def open_cache(path: str | Path) -> EmbeddingCache:
    """Open a complete cache for reading.

    >>> cache = gaam_cache.open_cache("cache")
    >>> cache["train"].embeddings[:2].shape
    (2, 4, 8)

    Raises:
        NotFoundError: no cache there.
        CacheError: shards are missing or damaged. Of the files only size and kind are looked at;
            their content is checked when it is first read.
    """
    return EmbeddingCache(absolute_path(path))
