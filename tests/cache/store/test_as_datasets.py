"""A cache as a data set of torch, of datasets and of scikit-learn; its shards as plain HDF5."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import gaam_cache
from gaam_cache.store.reader import EmbeddingCache

ROWS, NEW = 37, 9


@pytest.fixture(scope="module", params=["float16", "float32", "bfloat16"])
def cache(request: Any, tmp_path_factory: pytest.TempPathFactory) -> EmbeddingCache:
    states = np.random.default_rng(0).standard_normal((ROWS, 4, 6)).astype(np.float32)
    states[:, -1, 0] += 8.0 * (np.arange(ROWS) % 2)
    out = tmp_path_factory.mktemp("cache")
    gaam_cache.write(
        out,
        {"train": (states, np.arange(ROWS) % 2), "new": (states[:NEW] / 2, None)},
        class_names=["even", "odd"],
        columns={"who": {"train": [f"ä{n}" for n in range(ROWS)], "new": ["x"] * NEW}},
        storage_dtype=request.param,
        shard_rows=10,
    )
    return gaam_cache.open_cache(out)


def test_rows_of_torch_are_those_of_the_split(
    cache: EmbeddingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = rows = cache["train"]
    whole = split.embeddings[:].astype(np.float32)
    for index in (0, 17, -1):
        state, label = rows[index]
        assert (state.dtype, label.dtype) == (torch.float32, torch.int64)
        np.testing.assert_array_equal(state.numpy(), whole[index])
        assert int(label) == split.labels[index]
    with pytest.raises(IndexError):
        rows[ROWS]
    order = np.lexsort(whole.reshape(ROWS, -1).T)
    for there in (
        rows,
        pickle.loads(pickle.dumps(rows)),
    ):  # as a worker of the loader gets them
        found = torch.cat([states for states, _ in DataLoader(there, 8, True)]).numpy()
        np.testing.assert_array_equal(
            found[np.lexsort(found.reshape(ROWS, -1).T)], whole[order]
        )
    array = type(split.embeddings)
    reads, read = [], array.read_into
    monkeypatch.setattr(
        array, "read_into", lambda *args: reads.append(1) or read(*args)
    )
    assert len(list(DataLoader(rows, 8))) == len(reads) == 5, "a batch is read at once"


def test_states_are_an_array_to_other_libraries(cache: EmbeddingCache) -> None:
    from sklearn.linear_model import LogisticRegression

    train, states = cache["train"], cache["train"].embeddings
    assert (states.ndim, len(states)) == (3, ROWS)
    np.testing.assert_array_equal(np.stack(list(states)), states[:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (torch.tensor, torch.as_tensor, torch.from_dlpack):
            np.testing.assert_array_equal(make(states).numpy(), states[:])
        model = LogisticRegression().fit(states[:, -1], train.labels)
        assert model.score(states[:, -1], train.labels) == 1.0
