"""A cache as a data set of torch, of datasets and of scikit-learn; its shards as plain HDF5."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import gaam_cache
from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError

ROWS, NEW = 37, 9
STORED = ("float16", "float32", "bfloat16")


def given() -> Any:
    generator = np.random.default_rng(0)
    states = generator.standard_normal((ROWS, 4, 6)).astype(np.float32)
    states[:, -1, 0] += 8.0 * (np.arange(ROWS) % 2)
    states[:, 0] *= 3e4  # beyond what float16 can add up
    return np.clip(states, -6e4, 6e4)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EmbeddingCache]:
    found = {}
    for dtype in STORED:
        out = tmp_path_factory.mktemp("caches") / dtype
        gaam_cache.write(
            out,
            {"train": (given(), np.arange(ROWS) % 2), "new": (given()[:NEW] / 2, None)},
            class_names=["even", "odd"],
            columns={"who": {"train": [f"ä{n}" for n in range(ROWS)], "new": ["x"] * NEW}},
            storage_dtype=dtype,  # type: ignore[arg-type]
            shard_rows=10,
        )
        found[dtype] = gaam_cache.open_cache(out)
    return found


@pytest.mark.parametrize("dtype", STORED)
def test_rows_of_torch_are_those_of_the_split(
    dtype: str, caches: dict[str, EmbeddingCache]
) -> None:
    split = caches[dtype]["train"]
    rows = split.to_torch()
    assert len(rows) == ROWS
    whole = split.embeddings[:].astype(np.float32)
    for source in (rows, pickle.loads(pickle.dumps(rows))):
        for index in (0, 17, ROWS - 1, -1):
            state, label = source[index]
            assert (state.dtype, label.dtype) == (torch.float32, torch.int64)
            np.testing.assert_array_equal(state.numpy(), whole[index])
            assert int(label) == split.labels[index]
        picked = [5, 36, 0, 5]
        states, labels = zip(*source.__getitems__(picked), strict=True)
        np.testing.assert_array_equal(torch.stack(states).numpy(), whole[picked])
        assert torch.stack(labels).tolist() == split.labels[picked].tolist()
    for index in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            rows[index]
    with pytest.raises(ConfigError, match="no pooling 'max'"):
        split.to_torch("max")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_loader_gives_every_row_once(
    workers: int, start: str, caches: dict[str, EmbeddingCache]
) -> None:
    split = caches["float16"]["train"]
    context = start if workers else None
    loader = DataLoader(
        split.to_torch(), 8, shuffle=True, num_workers=workers, multiprocessing_context=context
    )
    found = torch.cat([states for states, _ in loader]).numpy()
    order = np.lexsort(found.reshape(ROWS, -1).T)
    whole = split.embeddings[:].astype(np.float32)
    np.testing.assert_array_equal(found[order], whole[np.lexsort(whole.reshape(ROWS, -1).T)])


def test_a_batch_is_read_at_once(
    caches: dict[str, EmbeddingCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = caches["float32"]["train"].to_torch()
    reads = []
    read = type(rows._states).read_into
    monkeypatch.setattr(
        type(rows._states), "read_into", lambda *args: reads.append(1) or read(*args)
    )
    batches = list(DataLoader(rows, 8))
    assert len(reads) == len(batches) == 5


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("dtype", STORED)
def test_a_data_set_has_states_labels_and_columns(
    dtype: str, streaming: bool, caches: dict[str, EmbeddingCache], tmp_path: Path
) -> None:
    for name, split in caches[dtype].items():
        found = split.to_dataset(streaming=streaming, folder=tmp_path)
        assert found.features is not None
        assert found.features["label"] == datasets.ClassLabel(names=["even", "odd"])
        kept = "float32" if dtype == "bfloat16" else dtype
        assert found.features["embeddings"] == datasets.Array2D((4, 6), kept)
        rows = list(found.with_format("numpy")) if streaming else found.with_format("numpy")[:]
        table: Any = (
            {key: [row[key] for row in rows] for key in found.features} if streaming else rows
        )
        np.testing.assert_array_equal(
            np.stack(list(table["embeddings"])).astype(np.float32),
            split.embeddings[:].astype(np.float32),
        )
        labels = split.labels if split.labelled else np.full(NEW, -1)
        np.testing.assert_array_equal(table["label"], labels)
        np.testing.assert_array_equal(table["num_tokens"], split.num_tokens)
        assert list(table["who"]) == split.column("who"), name


def test_a_data_set_is_copied_once_and_never_that_of_another_cache(
    caches: dict[str, EmbeddingCache], tmp_path: Path
) -> None:
    out = tmp_path / "c"
    first = {}
    for number in (1.0, 1.0, 2.0):
        if number not in first:
            for file in out.rglob("*.*"):
                file.unlink()
            gaam_cache.write(out, {"train": (np.full((4, 1, 2), number, "f4"), [0, 1, 0, 1])})
        found = gaam_cache.open_cache(out)["train"].to_dataset(folder=tmp_path / "hf")
        file = found.cache_files[0]["filename"]  # type: ignore[union-attr]
        assert first.setdefault(number, file) == file
        assert found[0]["embeddings"] == [[number, number]]  # type: ignore[index]
    assert len(set(first.values())) == 2


@pytest.mark.parametrize("dtype", STORED)
def test_scikit_learn_takes_a_layer_in_two_lines(
    dtype: str, caches: dict[str, EmbeddingCache]
) -> None:
    from sklearn.linear_model import LogisticRegression

    train = caches[dtype]["train"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression().fit(train.embeddings[:, -1], train.labels)
        assert model.score(train.embeddings[:, -1], train.labels) == 1.0


def test_one_layer_is_read_without_the_others(
    caches: dict[str, EmbeddingCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    for dtype, cache in caches.items():
        embeddings = cache["train"].embeddings
        whole, sizes = embeddings[:], []
        read = type(embeddings).read_into
        with monkeypatch.context() as patch:
            patch.setattr(
                type(embeddings),
                "read_into",
                lambda self, rows, raw, read=read, sizes=sizes: (
                    sizes.append(raw.nbytes) or read(self, rows, raw)
                ),
            )
            for index in (
                *((slice(None), -1), (slice(None), 0), (slice(3, 9), 2), (5, 1), (5, -4)),
                *((slice(None), 1, slice(2, 4)), (5, 1, 2), (np.array([3, 1]), 2)),
                (np.arange(ROWS) % 2 == 0, 1),
            ):
                found = embeddings[index]
                np.testing.assert_array_equal(found, whole[index], f"{dtype} {index}")
        assert sizes[0] == ROWS * 6 * (4 if dtype == "float32" else 2)
    for layer in (4, -5):
        with pytest.raises(IndexError):
            embeddings[:, layer]


@pytest.mark.parametrize("dtype", STORED)
def test_datasets_reads_the_shards_themselves(
    dtype: str, caches: dict[str, EmbeddingCache], tmp_path: Path
) -> None:
    cache = caches[dtype]
    files = sorted(map(str, (cache.root / "shards").glob("train-*.h5")))
    found: Any = datasets.load_dataset("hdf5", data_files=files, cache_dir=str(tmp_path))["train"]
    table = found.with_format("numpy")[:]
    states = np.asarray(table["embeddings"])
    if dtype == "bfloat16":  # its bits
        states = (states.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(states, cache["train"].embeddings[:].astype(np.float32))
    np.testing.assert_array_equal(table["label"], cache["train"].labels)
    np.testing.assert_array_equal(table["row"], np.arange(ROWS))
    who = [bytes(value).decode().rstrip("\0") for value in found["column_who"]]
    assert who == cache["train"].column("who")
