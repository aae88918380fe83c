"""A cache as a data set of torch and as an array of other libraries."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

import gaam_cache
from gaam_cache.store.reader import EmbeddingCache, Split

ROWS = 37
NEW_ROWS = 9


@pytest.fixture(scope="module", params=["float16", "float32", "bfloat16"])
def cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> EmbeddingCache:
    """Two classes that a number of the last layer tells apart."""
    states = np.random.default_rng(0).standard_normal((ROWS, 4, 6)).astype(np.float32)
    labels = np.arange(ROWS) % 2
    states[:, -1, 0] += 8.0 * labels
    names = [f"ä{row}" for row in range(ROWS)]
    out = tmp_path_factory.mktemp("cache")
    gaam_cache.write(
        out,
        {"train": (states, labels), "new": (states[:NEW_ROWS] / 2, None)},
        class_names=["even", "odd"],
        columns={"who": {"train": names, "new": ["x"] * NEW_ROWS}},
        storage_dtype=request.param,
        shard_rows=10,
    )
    return gaam_cache.open_cache(out)


def test_rows_of_torch_are_those_of_the_split(cache: EmbeddingCache) -> None:
    split = cache["train"]
    expected = split.embeddings[:].astype(np.float32)
    for index in (0, 17, -1):
        state, label = split[index]
        assert state.dtype == torch.float32
        assert label.dtype == torch.int64
        np.testing.assert_array_equal(state.numpy(), expected[index])
        assert int(label) == split.labels[index]
    with pytest.raises(IndexError):
        split[ROWS]


def loader_of(split: Split, *, shuffle: bool = False) -> DataLoader[Any]:
    """Batches of eight rows; a split has the methods of a data set, not its class."""
    return DataLoader(cast(Dataset[Any], split), 8, shuffle=shuffle)


def sorted_rows(states: NDArray[Any]) -> NDArray[Any]:
    return states[np.lexsort(states.reshape(len(states), -1).T)]


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_loader_gives_every_row_once(cache: EmbeddingCache, is_copied: bool) -> None:
    split = cache["train"]
    # as a worker of the loader gets it
    if is_copied:
        split = pickle.loads(pickle.dumps(split))
    batches = [states for states, _ in loader_of(split, shuffle=True)]
    states = torch.cat(batches).numpy()
    expected = cache["train"].embeddings[:].astype(np.float32)
    np.testing.assert_array_equal(sorted_rows(states), sorted_rows(expected))


def test_a_batch_is_read_at_once(
    cache: EmbeddingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = cache["train"]
    array_class = type(split.embeddings)
    read_into = array_class.read_into
    num_reads = 0

    def count_and_read(*arguments: Any) -> Any:
        nonlocal num_reads
        num_reads += 1
        return read_into(*arguments)

    monkeypatch.setattr(array_class, "read_into", count_and_read)
    assert len(list(loader_of(split))) == 5
    assert num_reads == 5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "make_tensor", [torch.tensor, torch.as_tensor, torch.from_dlpack]
)
def test_states_are_an_array_to_torch(
    make_tensor: Callable[[Any], torch.Tensor], cache: EmbeddingCache
) -> None:
    states = cache["train"].embeddings
    np.testing.assert_array_equal(make_tensor(states).numpy(), states[:])


def test_states_are_an_array_to_other_libraries(cache: EmbeddingCache) -> None:
    from sklearn.linear_model import LogisticRegression

    split = cache["train"]
    states = split.embeddings
    assert states.ndim == 3
    assert len(states) == ROWS
    np.testing.assert_array_equal(np.stack(list(states)), states[:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression().fit(states[:, -1], split.labels)
    assert model.score(states[:, -1], split.labels) == 1.0
