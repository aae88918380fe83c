"""The read side: a cache on disk as arrays, all shards of a split as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.format.layout import embeddings_key, missing_shards, planned_receipt
from gaam_cache.format.plan import Plan, read_plan
from gaam_cache.format.receipt import NUMPY_DTYPES, DatasetSpec, Receipt
from gaam_cache.reading.check_memory import CheckMemory
from gaam_cache.reading.shard_reader import Run, ShardReader, consecutive


class ShardedArray:
    """Arrays of several shards, indexed as one along the first axis.

    Indexing takes what NumPy takes for one axis (an integer, a slice, an array of row numbers or
    a mask) and returns a NumPy array; only the rows asked for are read. bfloat16 comes back as
    float32, which holds it exactly. A shard is checked, all of it, when its first row is read.
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
        self._stored = dtype
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
        return ShardedArray(self._shards, self._key, self._whole_shape, self._stored, keep)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Rows, in the order asked for.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
        """
        first, *others = index if isinstance(index, tuple) else (index,)
        row_N = self._row_numbers(first)
        out = self._gather(np.atleast_1d(row_N))
        rows: Any = slice(None) if np.ndim(row_N) else 0
        return out[(rows, *others)]

    def _row_numbers(self, index: Any) -> Any:
        plain = isinstance(index, np.ndarray) and index.ndim == 1 and index.dtype.kind == "i"
        if plain and (index.size == 0 or (index.min() >= 0 and index.max() < len(self))):
            return index  # every training batch: no work that grows with the number of rows
        return np.arange(len(self))[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole array in memory."""
        return np.asarray(self[:], dtype=dtype)

    def _gather(self, row_N: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(row_N), *self.shape[1:]), NUMPY_DTYPES[self._stored])
        if out.size:
            raw = out.reshape(len(row_N), -1).view(np.uint8)
            self._shards.read(self._key, row_N, raw, self._runs)
        if self._stored == "bfloat16":
            return (out.astype(np.uint32) << 16).view(np.float32)
        return out


class Split:
    """One split of a cache."""

    def __init__(
        self, root: Path, plan: Plan, name: str, receipts: list[Receipt], memory: CheckMemory
    ) -> None:
        """Use ``EmbeddingCache[name]``."""
        self.name = name
        self.class_names = plan.class_names
        self._root = root
        self._plan = plan
        self._receipts = receipts
        self._shards = ShardReader(root, plan, name, receipts, memory)

    def __repr__(self) -> str:
        """Name and size."""
        return f"<Split '{self.name}': {len(self):,} rows>"

    def __len__(self) -> int:
        """Number of rows."""
        return self._plan.rows[self.name]

    def _array(self, key: str) -> ShardedArray:
        spec = self._receipts[0].datasets[key]
        return ShardedArray(self._shards, key, (len(self), *spec.shape[1:]), spec.dtype)

    @cached_property
    def embeddings(self) -> ShardedArray:
        """Pooled states, (rows, num_layers, hidden_size); the first pooling of the cache."""
        return self.pooled(self._plan.pooling[0])

    def pooled(self, pooling: str) -> ShardedArray:
        """Pooled states of a named pooling, (rows, num_layers, hidden_size).

        Raises:
            ConfigError: the cache does not hold that pooling.
        """
        if pooling not in self._plan.pooling:
            raise ConfigError(
                f"the cache has no pooling '{pooling}'",
                expected=f"one of: {', '.join(self._plan.pooling)}",
                where=str(self._root),
                hint="extract it with --pool",
            )
        return self._array(embeddings_key(self._plan, pooling))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class number of every row, (rows,); ``class_names`` has their names."""
        return self._array("label")[:]

    @cached_property
    def num_tokens(self) -> NDArray[np.int32]:
        """Tokens of every row after truncation, (rows,)."""
        return self._array("num_tokens")[:]

    @property
    def truncated(self) -> int:
        """Number of rows that were cut at the maximum length."""
        return sum(receipt.truncated for receipt in self._receipts)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return sum(receipt.bytes for receipt in self._receipts)


class EmbeddingCache(Mapping[str, Split]):
    """A complete cache; ``cache["train"]`` is a split."""

    def __init__(self, root: Path) -> None:
        """Use ``open_cache``."""
        self.root = root
        self.plan = read_plan(root)
        missing = missing_shards(root, self.plan)
        if missing:
            total = sum(1 for _ in self.plan.shards())
            raise CacheError(
                "the cache is incomplete",
                expected=f"{total} shards",
                found=f"{total - len(missing)} ({missing[0]} is the first that is missing)",
                where=str(root.absolute()),
                hint="run the gaam extract that made it again; it goes on where it stopped",
            )
        memory = CheckMemory()
        self._splits = {name: self._read_split(name, memory) for name in self.plan.rows}

    def _read_split(self, name: str, memory: CheckMemory) -> Split:
        layouts: dict[Any, dict[str, DatasetSpec]] = {}
        receipts = []
        for shard in self.plan.shards(name):
            receipt = planned_receipt(self.root, self.plan, shard)
            # of many shards nearly all look alike: one layout and fingerprint in memory for them
            key = tuple(receipt.datasets.items())
            same = layouts.setdefault(key, receipt.datasets)
            fingerprint = self.plan.fingerprint
            receipts.append(replace(receipt, datasets=same, fingerprint=fingerprint, split=name))
        return Split(self.root, self.plan, name, receipts, memory)

    def __repr__(self) -> str:
        """Folder, encoder, splits."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.plan.rows.items())
        size = f"{self.num_layers} layers x {self.hidden_size}"
        return f"<EmbeddingCache '{self.root}': {self.plan.encoder_label}, {size}, {rows} rows>"

    def __getitem__(self, split: str) -> Split:
        """The split of that name.

        Raises:
            ConfigError: the cache has no such split; lists those it has.
        """
        if split not in self._splits:
            raise ConfigError(
                f"the cache has no split '{split}'",
                expected=f"one of: {', '.join(self._splits)}",
                where=str(self.root.absolute()),
                hint="extract it with --split",
            )
        return self._splits[split]

    def __iter__(self) -> Iterator[str]:
        """Names of the splits."""
        return iter(self._splits)

    def __contains__(self, split: object) -> bool:
        """Whether there is a split of that name."""
        return split in self._splits

    def __len__(self) -> int:
        """Number of splits."""
        return len(self._splits)

    @property
    def fingerprint(self) -> str:
        """Hash of everything that decides the numbers."""
        return self.plan.fingerprint

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; a label is an index into them."""
        return self.plan.class_names

    @property
    def num_layers(self) -> int:
        """Layers of the encoder."""
        return self.plan.num_layers

    @property
    def hidden_size(self) -> int:
        """Hidden size of the encoder."""
        return self.plan.hidden_size


def open_cache(path: str | Path) -> EmbeddingCache:
    """Open a complete cache for reading.

    Raises:
        NotFoundError: no cache there.
        CacheError: shards are missing or damaged. Of the files only size and kind are looked at;
            their content is checked when it is first read.
    """
    return EmbeddingCache(Path(path).expanduser())
