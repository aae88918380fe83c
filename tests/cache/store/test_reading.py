"""A split is one array, whatever its shards: every index means what it means to NumPy."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.store.reader import ShardedArray
from tests.cache.published import write_cache

WHOLE = np.random.default_rng(0).normal(size=(23, 3, 4)).astype(np.float16)


def sharded(
    whole: NDArray[Any], root: Path, storage_dtype: str = "float16"
) -> ShardedArray:
    """The states of a cache that holds ``whole``, ten rows a shard."""
    write_cache(
        root,
        {"train": len(whole)},
        *whole.shape[1:],
        lambda shard: whole[shard.start : shard.stop],
        shard_rows=10,
        storage_dtype=storage_dtype,
    )
    return gaam_cache.open_cache(root)["train"].embeddings


def some_index(rng: np.random.Generator, size: int) -> Any:
    numbers = rng.integers(-size, size, 2)
    kinds = [
        int(numbers[0]),
        numbers[0],
        numbers.tolist(),
        rng.integers(-size, size, (2, 2)),
        slice(*sorted(numbers.tolist()), int(rng.integers(1, 3))),
        slice(None),
    ]
    return kinds[rng.integers(len(kinds))]


def test_every_index_means_what_it_means_to_numpy(tmp_path: Path) -> None:
    """Integers, slices, arrays in one and two dimensions, masks, and the gap, at all axes."""
    whole = sharded(WHOLE, tmp_path / "cache")
    rng, refused = np.random.default_rng(0), 0
    for number in range(2000):
        layers = [2, 0] if number % 4 == 0 else [0, 1, 2]
        exact, array = WHOLE[:, layers], whole.keeping(layers)
        count = int(rng.integers(1, exact.ndim + 1))
        index: list[Any] = [some_index(rng, size) for size in exact.shape[:count]]
        gap = int(rng.integers(count + 1))
        if rng.integers(2):  # what follows a gap is of the last axes
            last = exact.shape[exact.ndim - count + gap :]
            index = [*index[:gap], ..., *(some_index(rng, size) for size in last)]
        try:
            expected = exact[tuple(index)]
        except IndexError:
            refused += 1
            with pytest.raises(IndexError):
                array[tuple(index)]
            continue
        assert array[tuple(index)].shape == expected.shape, index
        np.testing.assert_array_equal(array[tuple(index)], expected, err_msg=str(index))
    assert refused < 1000
    mask = np.arange(23) % 3 == 0
    np.testing.assert_array_equal(whole[mask], WHOLE[mask])
    np.testing.assert_array_equal(np.asarray(whole), WHOLE)
    assert (whole.shape, whole.dtype, len(whole)) == (WHOLE.shape, WHOLE.dtype, 23)
    for wrong in (23, (..., ...), (0, 0, 0, 0), (..., 0, 0, 0, 0), (slice(None), 3)):
        with pytest.raises(IndexError):
            whole[wrong]


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0xC040, 0x0000, 0x7F7F], np.uint16).reshape(2, 2, 1)
    some = sharded(bits, tmp_path / "cache", "bfloat16").keeping([1])
    np.testing.assert_array_equal(some[:].ravel(), np.float32([-3.0, 3.3895314e38]))


def test_reading_some_layers_takes_memory_for_those_alone(tmp_path: Path) -> None:
    states = sharded(np.ones((256, 40, 1024), np.float16), tmp_path / "cache")  # 21 MB
    for read in (states.keeping([7, 30]), states):
        tracemalloc.start()
        taken = read[:] if read is not states else read[:, -1]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1.3 * taken.nbytes + 4 * 2**20  # what the checks of a shard take
