from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.store.read import ShardedArray
from tests.cache.published import write_cache

WHOLE = np.random.default_rng(0).normal(size=(23, 3, 4)).astype(np.float16)
FOLDER = tempfile.TemporaryDirectory(prefix="gaam-sharded-")


def sharded(
    whole: NDArray[Any], root: Path, *, shard_rows: int = 10, storage_dtype: str = "float16"
) -> ShardedArray:
    """The states of a cache that holds ``whole``."""
    write_cache(
        root,
        {"train": len(whole)},
        *whole.shape[1:],
        lambda shard: whole[shard.start : shard.stop],
        shard_rows=shard_rows,
        storage_dtype=storage_dtype,
    )
    return gaam_cache.open_cache(root)["train"].embeddings


SHARDED = sharded(WHOLE, Path(FOLDER.name) / "cache")


@given(
    layers=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
    index=st.lists(st.integers(-23, 22), max_size=40),
)
def test_some_layers_equal_numpy(layers: list[int], index: list[int]) -> None:
    some = SHARDED.keeping(layers)
    rows = np.array(index, dtype=np.int64)
    np.testing.assert_array_equal(some[rows], WHOLE[rows][:, layers])
    np.testing.assert_array_equal(some[3:15], WHOLE[3:15][:, layers])
    np.testing.assert_array_equal(some[5, 0], WHOLE[5, layers[0]])
    assert some.shape == (23, len(layers), 4)
    np.testing.assert_array_equal(some.keeping([-1])[:], WHOLE[:, layers[-1:]])


def test_some_layers_of_bfloat16_and_layers_that_are_not_there(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0xC040, 0x0000, 0x7F7F], np.uint16).reshape(2, 2, 1)
    some = sharded(bits, tmp_path / "cache", storage_dtype="bfloat16").keeping([1])
    np.testing.assert_array_equal(some[:].ravel(), np.float32([-3.0, 3.3895314e38]))
    with pytest.raises(IndexError):
        SHARDED.keeping([3])


def test_reading_some_layers_takes_memory_for_those_alone(tmp_path: Path) -> None:
    whole = np.zeros((256, 40, 1024), np.float16)  # 21 MB, and the selection 1 MB
    some = sharded(whole, tmp_path / "cache", shard_rows=100).keeping([7, 30])
    tracemalloc.start()
    try:
        taken = some[:]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * taken.nbytes + 4 * 2**20  # what the checks of a shard take


def some_index(rng: np.random.Generator, size: int) -> Any:
    kind = rng.integers(6)
    numbers = rng.integers(-size, size, 2)
    if kind == 0:
        return int(numbers[0])
    if kind == 1:
        return np.int64(numbers[0])
    if kind == 2:
        return numbers.tolist()
    if kind == 3:
        return rng.integers(-size, size, (2, 2))
    return slice(*sorted(numbers.tolist()), int(rng.integers(1, 3)))


def test_every_index_means_what_it_means_to_numpy() -> None:
    """Integers, slices, arrays in one and two dimensions, masks, and the gap, at all axes."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(3000):
        count = int(rng.integers(1, WHOLE.ndim + 1))
        index: list[Any] = [some_index(rng, size) for size in WHOLE.shape[:count]]
        gap = int(rng.integers(count + 1))
        if rng.integers(2):  # what follows a gap is of the last axes
            last = WHOLE.shape[WHOLE.ndim - count + gap :]
            index = [*index[:gap], ..., *(some_index(rng, size) for size in last)]
        try:
            expected = WHOLE[tuple(index)]
        except IndexError:
            refused += 1
            with pytest.raises(IndexError):
                SHARDED[tuple(index)]
            continue
        found = SHARDED[tuple(index)]
        assert found.shape == expected.shape, index
        np.testing.assert_array_equal(found, expected, err_msg=str(index))
    assert refused < 1500
    mask = np.arange(23) % 3 == 0
    np.testing.assert_array_equal(SHARDED[mask], WHOLE[mask])
    np.testing.assert_array_equal(np.asarray(SHARDED), WHOLE)
    assert (SHARDED.shape, SHARDED.dtype, len(SHARDED)) == (WHOLE.shape, WHOLE.dtype, 23)
    for wrong in (23, (..., ...), (0, 0, 0, 0), (..., 0, 0, 0, 0)):
        with pytest.raises(IndexError):
            SHARDED[wrong]


def test_cache_reads_back_rows_in_data_set_order(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    cache = gaam_cache.open_cache(tiny_config.out)
    train = cache["train"]
    assert list(cache) == ["train", "test"]
    assert len(train) == len(train.labels) == len(train.embeddings) == 60
    assert train.class_names == ("a", "b")
    assert train.labels[:2].tolist() == [0, 1]  # the first rows are 'goal' (a) and 'bank' (b)
    assert train.num_tokens[:2].tolist() == [3, 3]  # [CLS] word [SEP]
    assert train.embeddings.shape == (60, cache.num_layers, cache.hidden_size) == (60, 3, 32)


def test_unknown_split_pooling_and_path_are_named(tiny_config: ExtractConfig) -> None:
    with pytest.raises(NotFoundError, match="gaam extract"):
        gaam_cache.open_cache(tiny_config.out)
    gaam_cache.extract(tiny_config)
    cache = gaam_cache.open_cache(tiny_config.out)
    with pytest.raises(ConfigError, match="train, test"):
        cache["dev"]
    with pytest.raises(ConfigError, match="mean"):
        cache["train"].pooled("last")
