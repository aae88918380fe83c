"""Read a cache: the shards of a split appear as one array.

A reader hashes the whole file of a shard before it uses the first row.

N requested rows, B rows of a batch, L layers, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

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

if TYPE_CHECKING:
    from torch import Tensor

# More threads would wait for the disk.
MAX_THREADS = 8
# Fewest bytes that several threads copy: fewer are copied before a thread has started.
MIN_BYTES_FOR_THREADS = 4 * 2**20
# Rows that an iteration reads at once.
ROWS_PER_READ = 64


class ShardedArray:
    """Arrays of several shards as one array of (rows, layers, features) or (rows,).

    An index may hold integers, slices, arrays of integers, a mask of rows and ``...``,
    as in NumPy. The result is a NumPy array; only the requested rows are read. bfloat16
    is read as float32, which represents it exactly.

    Raises:
        CacheError: a shard that is read is damaged; the error names it and the repair.
    """

    def __init__(
        self,
        split: Split,
        key: str,
        kept_positions: NDArray[np.int64] | None = None,
    ) -> None:
        """Find the type and the shape from the receipts; no state is read yet.

        Callers use ``Split.pooled``, and the method ``keeping`` of its result, instead.

        Args:
            split: the split of the rows.
            key: name of the arrays in the shards.
            kept_positions: positions of the second axis to read; None for all.
        """
        spec = split.receipts[0].datasets[key]
        self._split = split
        self._key = key
        self._kept_positions = kept_positions
        self.stored_dtype = spec.dtype
        """Type on disk: float16, bfloat16, float32, or that of labels and tokens."""
        self.shape = (len(split), *spec.shape[1:])
        if kept_positions is not None:
            self.shape = (len(split), len(kept_positions), *spec.shape[2:])
        self.ndim = len(self.shape)
        is_bfloat16 = spec.dtype == "bfloat16"
        self.dtype = np.dtype("<f4" if is_bfloat16 else NUMPY_DTYPES[spec.dtype])

    def __repr__(self) -> str:
        return f"<ShardedArray {self.shape} {self.dtype}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), ROWS_PER_READ):
            yield from self[start : start + ROWS_PER_READ]

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """Let torch make a tensor of the array at once, not element by element."""
        return self[:].__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self[:0].__dlpack_device__()

    def keeping(self, positions: Sequence[int]) -> ShardedArray:
        """The same array with only these positions of the second axis: layers, from 0.

        Nothing is read yet. Later reads skip the bytes of all other positions.
        """
        available_positions = self._kept_positions
        if available_positions is None:
            available_positions = np.arange(self.shape[1])
        kept_positions = available_positions[np.asarray(positions, dtype=np.int64)]
        return ShardedArray(self._split, self._key, kept_positions)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Read the part that ``index`` selects, and no other rows of the shards."""
        row_index, other_indices = self._separate_rows(index)

        # If the index names a single layer, only the bytes of this layer are read.
        if self._is_single_layer(other_indices):
            layer, *feature_indices = other_indices
            # indexing a range makes a negative number positive, and checks it
            position = range(self.shape[1])[layer]
            states = self.keeping([position])[row_index]
            if not feature_indices:
                feature_indices = [slice(None)]
            # the array that was read has this layer alone, at position 0
            return states[(..., 0, *feature_indices)]

        # Read all layers of the requested rows. An index of rows may have any shape;
        # ``row_N`` has the same rows on one axis.
        row_numbers: NDArray[np.int64] = np.arange(len(self))[row_index]
        row_N = np.ravel(row_numbers)
        rows = np.empty((len(row_N), *self.shape[1:]), NUMPY_DTYPES[self.stored_dtype])
        if rows.size:
            bytes_of_rows = rows.reshape(len(row_N), -1).view(np.uint8)
            self.read_into(row_N, bytes_of_rows)
        if self.stored_dtype == "bfloat16":
            rows = as_float32(rows)

        # ``rows`` has the requested rows alone, so their positions in it take the place
        # of their numbers: [[0, 1]] for [[3, 5]]. The shape stays, because NumPy pairs
        # index arrays of several axes element by element.
        new_row_index: Any = slice(None)
        if not isinstance(row_index, slice):
            new_row_index = np.arange(len(rows)).reshape(row_numbers.shape)
        selected: NDArray[Any] = rows[(new_row_index, *other_indices)]
        return selected

    def _separate_rows(self, index: Any) -> tuple[Any, list[Any]]:
        """Split an index into that of the rows and those of the other axes.

        Returns:
            The index of the first axis, and a list of the indices of the others.
        """
        indices: tuple[Any, ...] = (index,)
        if isinstance(index, tuple):
            indices = index

        # A leading ``...`` stands for all rows, unless every axis has its own index.
        begins_with_ellipsis = len(indices) > 0 and indices[0] is ...
        if begins_with_ellipsis and len(indices) > self.ndim:
            indices = indices[1:]
        elif begins_with_ellipsis:
            indices = (slice(None), *indices)
        if not indices:
            return slice(None), []
        return indices[0], list(indices[1:])

    def _is_single_layer(self, other_indices: list[Any]) -> bool:
        """Whether these indices begin with a layer number and hold no array.

        ``other_indices`` are those of the axes behind the rows: layers and features.
        """
        # labels and numbers of tokens have no axis of layers; NumPy refuses one index
        # too many
        is_of_layers = 0 < len(other_indices) < self.ndim == 3
        if not is_of_layers or isinstance(other_indices[0], slice):
            return False
        return all(
            isinstance(index, int | np.integer | slice) for index in other_indices
        )

    def read_into(self, row_N: NDArray[np.int64], raw: NDArray[np.uint8]) -> None:
        """Copy rows, as they are stored, to an array of bytes.

        bfloat16 is copied as its bits. The errors are those of indexing.

        Args:
            row_N: numbers of the rows, not negative; ascending ones are read fastest.
            raw: receives the rows, (N, bytes of a row), C-contiguous.
        """
        if not raw.size:
            return

        # Group the requested rows by shard: sorted by number, the rows of a shard are
        # neighbours. An output row is an index into row_N and raw.
        order_N = np.argsort(row_N, kind="stable")
        shard_N = row_N[order_N] // self._split.shard_rows
        starts = [0, *(np.flatnonzero(np.diff(shard_N)) + 1).tolist()]
        shards: list[int] = shard_N[starts].tolist()
        output_rows_by_shard = np.split(order_N, starts[1:])

        def copy(shard: int, output_row_N: NDArray[np.int64]) -> None:
            row_in_shard_N = row_N[output_row_N] % self._split.shard_rows
            self._copy_rows(shard, row_in_shard_N, output_row_N, raw)

        # Threads save time if many bytes are copied or a shard must be hashed first.
        are_all_hashed = all(self._split.is_hashed[shard] for shard in shards)
        if raw.nbytes < MIN_BYTES_FOR_THREADS and are_all_hashed:
            for shard, output_row_N in zip(shards, output_rows_by_shard, strict=True):
                copy(shard, output_row_N)
            return
        num_threads = min(MAX_THREADS, len(cores()), len(shards))
        with ThreadPoolExecutor(num_threads, "read") as pool:
            # The list waits for all copies; the first error cancels the others.
            list(pool.map(copy, shards, output_rows_by_shard))

    def _copy_rows(
        self,
        shard: int,
        row_in_shard_N: NDArray[np.int64],
        output_row_N: NDArray[np.int64],
        raw: NDArray[np.uint8],
    ) -> None:
        """Copy some rows of one shard, with the kept positions of the second axis only.

        Args:
            shard: index of the shard within the split.
            row_in_shard_N: numbers of the rows within the shard.
            output_row_N: index in ``raw`` of each of these rows.
            raw: receives the rows, (all requested rows, bytes of a row).
        """
        # view the array of the shard as bytes: (rows, positions, bytes of a position)
        stored = self._split.arrays(shard)[self._key]
        num_positions = stored.shape[1] if stored.ndim > 2 else 1
        stored_bytes = stored.view(np.uint8).reshape(len(stored), num_positions, -1)

        rows = _as_slice(row_in_shard_N)
        positions: slice | NDArray[np.int64] = slice(None)
        if self._kept_positions is not None:
            positions = _as_slice(self._kept_positions)
        # NumPy would pair two arrays of integers element by element. With the rows as a
        # column, it takes every position of every row.
        if not isinstance(rows, slice) and not isinstance(positions, slice):
            rows = rows[:, None]
        selected = stored_bytes[rows, positions]
        raw[_as_slice(output_row_N)] = selected.reshape(len(selected), -1)


def _as_slice(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """A slice for consecutive numbers, which NumPy copies in one go.

    Other numbers are returned as they are.
    """
    if len(numbers) and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


class Split:
    """One split of a cache; a torch data set of (states in float32, label), too.

    Nothing is read before it is needed. A ``DataLoader`` reads a whole batch at once.
    The receipt of a shard, a small file beside it, records its size, hash and arrays.
    """

    def __init__(
        self, root: Path, plan: Plan, name: str, receipts: list[Receipt]
    ) -> None:
        """Use ``EmbeddingCache[name]``."""
        self.name = name
        self.task = plan.task
        self.class_names = plan.class_names
        self.target = plan.target
        self.first_layer = plan.first_layer
        """Number of the first layer of its states: 0 is the encoder's input."""
        self.labelled = name not in plan.unlabelled
        """Whether its rows have labels; else every label is -1, NaN or 255."""
        self.truncated = sum(receipt.truncated for receipt in receipts)
        """Number of rows that were cut at the maximum length."""
        self.nbytes = sum(receipt.bytes for receipt in receipts)
        """Bytes on disk."""
        self.receipts = receipts
        self.shard_rows = plan.shard_rows
        self.is_hashed = [False] * len(receipts)
        """Whether the file of each shard was hashed."""
        self._root = root
        self._plan = plan

    def __repr__(self) -> str:
        return f"<Split '{self.name}': {len(self):,} rows>"

    def __len__(self) -> int:
        return self._plan.rows[self.name]

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        """Read one row.

        Returns:
            Its states of the first pooling, (num_layers, hidden_size), and its label.
        """
        # a negative number counts from the end; one out of range is refused
        row_number = range(len(self))[row]
        return self.__getitems__([row_number])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Read several rows at once: a ``DataLoader`` calls this for a batch.

        Returns:
            For every row its states (num_layers, hidden_size), and its label.
        """
        import torch

        # One read of the whole batch opens every shard only once.
        row_B = np.asarray(rows, np.int64)
        states_BLD = self.embeddings[row_B].astype(np.float32, copy=False)
        states = torch.from_numpy(states_BLD)
        labels = torch.from_numpy(self.labels[row_B])
        return list(zip(states, labels, strict=True))

    def arrays(self, shard: int) -> dict[str, NDArray[Any]]:
        """The memory-mapped arrays of a shard; the first call hashes its file."""
        receipt = self.receipts[shard]
        if not self.is_hashed[shard]:
            check_content(self._root, self._plan, receipt)
            self.is_hashed[shard] = True
        return map_arrays(self._root, receipt)

    @cached_property
    def embeddings(self) -> ShardedArray:
        """Pooled states, (rows, num_layers, hidden_size), of the first pooling.

        Position 0 of the layers is the first kept layer. ``layer`` takes the numbers of
        ``--layers`` instead.
        """
        return self.pooled(self._plan.pooling[0])

    def layer(self, number: int) -> NDArray[Any]:
        """States of one layer, (rows, hidden_size).

        Args:
            number: of the layer, as in ``--layers``: 0 is the encoder's input.

        Raises:
            ConfigError: the cache does not hold that layer.
        """
        numbers = range(self.first_layer, self.first_layer + self._plan.num_layers)
        if number not in numbers:
            valid = map(str, numbers)
            raise unknown("layer", str(number), valid, where=str(self._root))
        return self.embeddings[:, numbers.index(number)]

    def pooled(self, pooling: str) -> ShardedArray:
        """Pooled states of a named pooling, (rows, num_layers, hidden_size).

        Raises:
            ConfigError: the cache does not hold that pooling.
        """
        if pooling not in self._plan.pooling:
            raise unknown("pooling", pooling, self._plan.pooling, where=str(self._root))
        return ShardedArray(self, embeddings_key(self._plan, pooling))

    @cached_property
    def labels(self) -> NDArray[Any]:
        """The label of every row, as the task of the cache has it.

        classification: class number, (rows,) int64; ``class_names`` has their names.
        regression: K numbers, (rows, K) float32. multi-label: 1 for every label that
        the row has and else 0, (rows, K) uint8. ``target_names`` has their names.
        """
        return ShardedArray(self, self._plan.target.array_key)[:]

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
        self.root = root
        self.plan = read_plan(root)
        self.fingerprint = self.plan.fingerprint
        """Hash of everything that decides the numbers."""
        self.task = self.plan.task
        """Name of the task: classification, regression, multi-label."""
        self.class_names = self.plan.class_names
        """Names of the classes: a label is an index into them. Empty if the task is not
        classification."""
        self.target_names = self.plan.target_names
        """Names of the classes, of the numbers or of the labels."""
        self.num_layers = self.plan.num_layers
        """Number of kept layers of the encoder."""
        self.hidden_size = self.plan.hidden_size
        self.first_layer = self.plan.first_layer
        """Number of the first kept layer: 0 is the encoder's input."""
        self.columns = tuple(self.plan.columns)
        """Names of the kept columns."""
        self.unlabelled = self.plan.unlabelled
        """Splits without labels: for predictions."""
        self._check_complete()
        self._splits = {name: self._open_split(name) for name in self.plan.rows}

    def _check_complete(self) -> None:
        """Refuse a cache that lacks shards."""
        missing = missing_shards(self.root, self.plan)
        if missing:
            raise CacheError(
                "the cache is incomplete",
                found=f"{len(missing)} of {self.plan.num_shards} shards are missing, "
                f"first {missing[0]}",
                where=str(self.root),
                hint=f"run the '{self.plan.maker}' command of this cache again: "
                "it makes the missing shards",
            )

    def _open_split(self, name: str) -> Split:
        """Read and check the receipts of all shards of a split."""
        receipts = [
            read_receipt(self.root, self.plan, shard)
            for shard in self.plan.shards(name)
        ]
        return Split(self.root, self.plan, name, receipts)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.plan.rows.items())
        return (
            f"<EmbeddingCache '{shown_path(self.root)}': {self.plan.encoder_label}, "
            f"{self.num_layers} layers x {self.hidden_size}, {rows} rows>"
        )

    def __getitem__(self, split: str) -> Split:
        """The split of that name.

        Raises:
            ConfigError: the cache has no such split; the message lists its splits.
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

    Opening checks the sizes of the files; the first read of a shard checks its content.

    >>> cache = gaam_cache.open_cache("cache")
    >>> cache["train"].embeddings[:2].shape
    (2, 4, 8)

    Raises:
        NotFoundError: no cache there.
        CacheError: shards are missing or damaged.
    """
    return EmbeddingCache(absolute_path(path))
