"""The read side: a cache on disk as arrays, all shards of a split as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.store.dtypes import unpacked
from gaam_cache.store.plan import Plan, read_plan
from gaam_cache.store.read import ShardedArray, ShardReader
from gaam_cache.store.shard import (
    Receipt,
    column_key,
    embeddings_key,
    missing_shards,
    planned_receipt,
)


class Split:
    """One split of a cache, as a ``DataLoader`` takes it too: (states in float32, label).

    Nothing is read before it is asked for; a ``DataLoader`` asks for a batch at once.
    """

    def __init__(self, root: Path, plan: Plan, name: str, receipts: list[Receipt]) -> None:
        """Use ``EmbeddingCache[name]``."""
        self.name, self.class_names = name, plan.class_names
        self.first_layer = plan.first_layer
        """Number of the first layer of its states: 0 or 1."""
        self.labelled = name not in plan.unlabelled
        """Whether the classes of its rows are known; else every label is -1."""
        self.truncated = sum(receipt.truncated for receipt in receipts)
        """Number of rows that were cut at the maximum length."""
        self.nbytes = sum(receipt.bytes for receipt in receipts)
        """Bytes on disk."""
        self._root, self._plan, self._receipts = root, plan, receipts
        self._shards = ShardReader(root, plan, name, receipts)

    def __repr__(self) -> str:
        """Name and size."""
        return f"<Split '{self.name}': {len(self):,} rows>"

    def __len__(self) -> int:
        """Number of rows."""
        return self._plan.rows[self.name]

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        """States (num_layers, hidden_size) of the first pooling, and label, of a row."""
        return self.__getitems__([range(len(self))[row]])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        """Several rows with one look at the shards."""
        import torch

        row_B = np.asarray(rows, np.int64)
        states_BLD = torch.from_numpy(self.embeddings[row_B].astype(np.float32, copy=False))
        return list(zip(states_BLD, torch.from_numpy(self.labels[row_B]), strict=True))

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
        _check("pooling", pooling, self._plan.pooling, "--pool", self._root)
        return self._array(embeddings_key(self._plan, pooling))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class number of every row, (rows,); ``class_names`` has their names."""
        return self._array("label")[:]

    @cached_property
    def num_tokens(self) -> NDArray[np.int32]:
        """Tokens of every row after truncation, (rows,)."""
        return self._array("num_tokens")[:]

    def column(self, name: str) -> list[str]:
        """A kept column, one string per row.

        Raises:
            ConfigError: the cache keeps no such column.
        """
        _check("column", name, self._plan.columns, "--keep-column", self._root)
        return unpacked(self._array(column_key(name))[:])


class EmbeddingCache(Mapping[str, Split]):
    """A complete cache; ``cache["train"]`` is a split."""

    def __init__(self, root: Path) -> None:
        """Use ``open_cache``."""
        self.root, self.plan = root, read_plan(root)
        self.fingerprint = self.plan.fingerprint
        """Hash of everything that decides the numbers."""
        self.class_names = self.plan.class_names
        """Names of the classes; a label is an index into them."""
        self.num_layers, self.hidden_size = self.plan.num_layers, self.plan.hidden_size
        """Layers of the encoder that are kept, and its hidden size."""
        self.first_layer = self.plan.first_layer
        """Number of the first of them: 0 where that is the encoder's input, else 1."""
        self.columns = tuple(self.plan.columns)
        """Names of the kept columns."""
        self.unlabelled = self.plan.unlabelled
        """Splits without labels: to predict on."""
        if missing := missing_shards(root, self.plan):
            raise CacheError(
                "the cache is incomplete",
                expected=f"{self.plan.num_shards} shards",
                found=f"{len(missing)} are missing, first {missing[0]}",
                where=str(root.absolute()),
                hint=f"run the {self.plan.maker} that made it again: it goes on",
            )
        self._splits = {}
        for name in self.plan.rows:
            receipts = [planned_receipt(root, self.plan, one) for one in self.plan.shards(name)]
            self._splits[name] = Split(root, self.plan, name, receipts)

    def __repr__(self) -> str:
        """Folder, encoder, splits."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.plan.rows.items())
        about = f"{self.plan.encoder_label}, {self.num_layers} layers x {self.hidden_size}"
        return f"<EmbeddingCache '{self.root}': {about}, {rows} rows>"

    def __getitem__(self, split: str) -> Split:
        """The split of that name.

        Raises:
            ConfigError: the cache has no such split; lists those it has.
        """
        _check("split", split, self._splits, "--split", self.root)
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
    return EmbeddingCache(Path(path).expanduser())


def _check(
    what: str, name: str, there: Mapping[str, Any] | tuple[str, ...], option: str, root: Path
) -> None:
    if name not in there:
        raise ConfigError(
            f"the cache has no {what} '{name}'",
            expected=f"one of: {', '.join(there)}" if there else f"none: it has no {what}",
            where=str(root.absolute()),
            hint=f"extract it with {option}",
        )
