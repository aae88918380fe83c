"""A cache that is not there yet, for estimates: its plan and its labels are known, no state is.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gaam_cache.cache import EmbeddingCache, Split
from gaam_cache.format.plan import Plan
from gaam_cache.reading.shard_reader import Run, ShardReader
from gaam_cache.reading.sharded_array import ShardedArray

DRAWN = 2**20
"""Numbers that are drawn; more are these again."""


class ExpectedCache(EmbeddingCache):
    """What ``open_cache`` would give, with numbers drawn at random where states would be.

    Whoever computes with it takes the time that he would take with the cache; what comes out means
    nothing.

    Args:
        root: where the cache will be.
        plan: its plan, as far as it is known.
        labels: class numbers of every split, (N,).
    """

    def __init__(self, root: Path, plan: Plan, labels: Mapping[str, NDArray[np.int64]]) -> None:
        self.root = root
        self.plan = plan
        self._splits = {name: _ExpectedSplit(root, plan, name, labels[name]) for name in plan.rows}


class _ExpectedSplit(Split):
    def __init__(self, root: Path, plan: Plan, name: str, label_N: NDArray[np.int64]) -> None:
        self.name = name
        self.class_names = plan.class_names
        self.labels = label_N
        self._root = root
        self._plan = plan
        self._receipts = []

    def _array(self, key: str) -> ShardedArray:
        shape = len(self), self._plan.num_layers, self._plan.hidden_size
        dtype = self._plan.storage_dtype
        return ShardedArray(_Drawn(dtype), key, shape, dtype)


class _Drawn(ShardReader):
    """Standard normal numbers, as a shard stores them."""

    def __init__(self, dtype: str) -> None:
        numbers = np.random.default_rng(0).standard_normal(DRAWN, dtype=np.float32)
        if dtype == "bfloat16":  # the upper half of float32
            numbers = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        else:
            numbers = numbers.astype(dtype)
        self._raw = numbers.view(np.uint8)

    def read(
        self, key: str, row_N: NDArray[np.int64], out: NDArray[np.uint8], runs: Sequence[Run]
    ) -> None:
        flat = out.reshape(-1)
        for start in range(0, flat.size, self._raw.size):
            part = flat[start : start + self._raw.size]
            part[:] = self._raw[: part.size]
