"""States to plant in: Gaussian ones, or those of a cache; read in parts, the same at every reading.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gaam_cache.cache import EmbeddingCache

BLOCK_ROWS = 512
"""Rows that are in memory at once; of Gaussian states each such block has a seed of its own."""
MEAN = 3.0
"""Distance of the mean of every feature of Gaussian states from 0, in standard deviations. Real
states have such means; a gate multiplies them, which no linear decoder of the states can follow:
without (mean 0) a linear map sees 37 to 74% of the variance that the gates of ``gates`` let
through, with it 2 to 19%."""
GAUSSIAN, CHOICE = 1, 2
"""Random streams of a seed; ``teacher`` has others."""


class States:
    """What can be sliced by rows, (N, L, D); as the cache will store it."""

    shape: tuple[int, int, int]
    dtype: np.dtype[np.generic]

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        """Of a range of rows."""
        raise NotImplementedError

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """All rows in parts, and which they are."""
        for start in range(0, len(self), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(self)))
            yield rows, self[rows].astype(np.float64)


class GaussianStates(States):
    """``x = mean + z``: z independent and standard normal, the mean 3 or -3, one of each feature.

    Args:
        shape: (N, L, D).
        seed: decides the numbers.
        first: number of the first row, so that splits of one seed do not share rows.
        dtype: float32 or float16.
    """

    def __init__(self, shape: tuple[int, int, int], seed: int, first: int, dtype: str) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._seed, self._first = seed, first
        signs_D = np.random.default_rng([seed, GAUSSIAN]).integers(0, 2, shape[2])
        self._mean_D = (MEAN * (2.0 * signs_D - 1)).astype(np.float32)

    def _block(self, block: int) -> NDArray[np.float32]:
        generator = np.random.default_rng([self._seed, GAUSSIAN, block])
        shape = (BLOCK_ROWS, *self.shape[1:])
        return generator.standard_normal(shape, dtype=np.float32) + self._mean_D

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        start, stop, _ = rows.indices(len(self))
        start, stop = start + self._first, stop + self._first
        parts = [np.empty((0, *self.shape[1:]), np.float32)]
        for block in range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            before = block * BLOCK_ROWS
            parts.append(self._block(block)[max(0, start - before) : stop - before])
        return np.concatenate(parts).astype(self.dtype)


class CachedStates(States):
    """Chosen rows of a cache, of its first pooling.

    Args:
        cache: whose states.
        row_N: which rows, counted over all its splits in order, ascending.
        dtype: float32 or float16.
    """

    def __init__(self, cache: EmbeddingCache, row_N: NDArray[np.int64], dtype: str) -> None:
        self.shape = (len(row_N), cache.num_layers, cache.hidden_size)
        self.dtype = np.dtype(dtype)
        self._cache, self._row_N = cache, row_N
        self._ends = np.cumsum([len(cache[name]) for name in cache])

    def __getitem__(self, rows: slice) -> NDArray[np.generic]:
        wanted_N = self._row_N[rows]
        split_N = np.searchsorted(self._ends, wanted_N, side="right")
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for place, name in enumerate(self._cache):
            of_split_N = wanted_N[split_N == place]
            if len(of_split_N):
                first = int(self._ends[place]) - len(self._cache[name])
                states_NLD = self._cache[name].embeddings[of_split_N - first]
                with np.errstate(over="ignore"):  # what overflows is refused where it is stored
                    parts.append(states_NLD.astype(self.dtype))
        return np.concatenate(parts)


def chosen_rows(there: int, wanted: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    """Rows for every split, by chance and none twice, each in ascending order.

    Args:
        there: number of rows to choose from.
        wanted: number of rows of every split.
        seed: decides which.
    """
    order_N = np.random.default_rng([seed, CHOICE]).permutation(there)
    ends = np.cumsum(wanted)
    return [np.sort(order_N[end - n : end]) for end, n in zip(ends, wanted, strict=True)]
