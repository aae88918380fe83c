"""A split is one array, whatever its shards: an index means what it does to NumPy."""

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

ROWS = 23


def write_states(
    states_NLD: NDArray[Any], folder: Path, storage_dtype: str = "float16"
) -> ShardedArray:
    """The states of a new cache of ten rows a shard."""
    write_cache(
        folder,
        {"train": len(states_NLD)},
        states_NLD.shape[1],
        states_NLD.shape[2],
        lambda shard: states_NLD[shard.start : shard.stop],
        shard_rows=10,
        storage_dtype=storage_dtype,
    )
    return gaam_cache.open_cache(folder)["train"].embeddings


@pytest.fixture(scope="module")
def expected() -> NDArray[np.float16]:
    return np.random.default_rng(0).normal(size=(ROWS, 3, 4)).astype(np.float16)


@pytest.fixture(scope="module")
def states(
    expected: NDArray[np.float16], tmp_path_factory: pytest.TempPathFactory
) -> ShardedArray:
    return write_states(expected, tmp_path_factory.mktemp("reading") / "cache")


def draw_axis_index(rng: np.random.Generator, size: int) -> Any:
    """An index of one axis: a number, numbers, or a slice."""
    numbers = rng.integers(-size, size, 2)
    kinds = [
        int(numbers[0]),
        numbers[0],
        numbers.tolist(),
        rng.integers(-size, size, (2, 2)),
        slice(min(numbers), max(numbers), int(rng.integers(1, 3))),
        slice(None),
    ]
    return kinds[rng.integers(len(kinds))]


def draw_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index of some axes, in half of the cases with a gap."""
    num_axes = int(rng.integers(1, len(shape) + 1))
    index = [draw_axis_index(rng, size) for size in shape[:num_axes]]
    gap = int(rng.integers(num_axes + 1))
    if rng.integers(2):
        # what follows a gap is of the last axes
        last_sizes = shape[len(shape) - num_axes + gap :]
        last = [draw_axis_index(rng, size) for size in last_sizes]
        index = [*index[:gap], ..., *last]
    return tuple(index)


def test_every_index_means_what_it_means_to_numpy(
    states: ShardedArray, expected: NDArray[np.float16]
) -> None:
    """Integers, slices, arrays in one and two dimensions, and the gap, at all axes."""
    rng = np.random.default_rng(0)
    num_refused = 0
    for number in range(2000):
        layers = [2, 0] if number % 4 == 0 else [0, 1, 2]
        index = draw_index(rng, (ROWS, len(layers), 4))
        array = states.keeping(layers)
        try:
            values = expected[:, layers][index]
        except IndexError:
            num_refused += 1
            with pytest.raises(IndexError):
                array[index]
            continue
        assert array[index].shape == values.shape, index
        np.testing.assert_array_equal(array[index], values, err_msg=str(index))
    assert num_refused < 1000


def test_a_mask_means_what_it_means_to_numpy(
    states: ShardedArray, expected: NDArray[np.float16]
) -> None:
    mask = np.arange(ROWS) % 3 == 0
    np.testing.assert_array_equal(states[mask], expected[mask])


def test_a_split_is_an_array(
    states: ShardedArray, expected: NDArray[np.float16]
) -> None:
    np.testing.assert_array_equal(np.asarray(states), expected)
    assert states.shape == expected.shape
    assert states.dtype == expected.dtype
    assert len(states) == ROWS


@pytest.mark.parametrize(
    "index",
    [
        *(ROWS, (..., ...), (slice(None), 3)),
        *((0, 0, 0, 0), (..., 0, 0, 0, 0), (slice(None), 2, 0, 0), ([0, 1], 0, 0, 0)),
    ],
    ids=str,
)
def test_an_index_that_numpy_refuses_is_refused(
    index: Any, states: ShardedArray
) -> None:
    with pytest.raises(IndexError):
        states[index]


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0xC040, 0x0000, 0x7F7F], np.uint16).reshape(2, 2, 1)
    states = write_states(bits, tmp_path / "cache", "bfloat16").keeping([1])
    np.testing.assert_array_equal(
        states[:].ravel(), np.array([-3.0, 3.3895314e38], np.float32)
    )


@pytest.fixture(scope="module")
def large_states(tmp_path_factory: pytest.TempPathFactory) -> ShardedArray:
    """States of 21 MB."""
    folder = tmp_path_factory.mktemp("large") / "cache"
    return write_states(np.ones((256, 40, 1024), np.float16), folder)


def peak_memory_of(array: ShardedArray, index: Any) -> tuple[int, int]:
    """Bytes of the states that are read, and of memory at most."""
    tracemalloc.start()
    try:
        states_read = array[index]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return states_read.nbytes, peak


FOR_CHECKS = 4 * 2**20
"""Bytes that the checks of a shard take."""


def test_keeping_some_layers_takes_memory_for_those_alone(
    large_states: ShardedArray,
) -> None:
    num_bytes, peak = peak_memory_of(large_states.keeping([7, 30]), slice(None))
    assert peak < 1.3 * num_bytes + FOR_CHECKS


def test_reading_a_layer_takes_memory_for_it_alone(large_states: ShardedArray) -> None:
    num_bytes, peak = peak_memory_of(large_states, (slice(None), -1))
    assert peak < 1.3 * num_bytes + FOR_CHECKS
