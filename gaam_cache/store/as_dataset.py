"""A split of a cache as a data set of ``torch`` and of ``datasets``.

L layers, D hidden size, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

import gaam_cache
from gaam_cache.errors import CacheError
from gaam_cache.store.plan import Plan
from gaam_cache.store.read import ShardedArray
from gaam_cache.store.shard import embeddings_key

if TYPE_CHECKING:
    import datasets

WRITTEN_BYTES = 32 * 2**20
"""Of rows that are written at a time."""


class TorchRows(Dataset[tuple[Tensor, Tensor]]):
    """Rows of a split: (states (L, D) in float32, label); use ``Split.to_torch``.

    Nothing is read before it is asked for. A ``DataLoader`` asks for a batch at once
    (``__getitems__``), also from workers, to which this is sent as it is.
    """

    def __init__(self, states: ShardedArray, labels: NDArray[np.int64]) -> None:
        self._states, self._labels = states, torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.__getitems__([range(len(self))[row]])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Several rows with one look at the shards."""
        row_B = np.asarray(rows, np.int64)
        states_BLD = torch.from_numpy(self._states[row_B].astype(np.float32, copy=False))
        return list(zip(states_BLD, self._labels[torch.from_numpy(row_B)], strict=True))


def arrow_rows(
    root: Path, plan: Plan, split: str, *, streaming: bool, folder: Path | None
) -> datasets.Dataset | datasets.IterableDataset:
    """As ``Split.to_dataset`` says."""
    import datasets

    asked = {"root": str(root.absolute()), "split": split, "fingerprint": plan.fingerprint}
    stored = "float32" if plan.storage_dtype == "bfloat16" else plan.storage_dtype
    states = datasets.Array2D((plan.num_layers, plan.hidden_size), stored)
    features = datasets.Features(
        {
            **{embeddings_key(plan, name): states for name in plan.pooling},
            "label": datasets.ClassLabel(names=list(plan.class_names)),
            "num_tokens": datasets.Value("int32"),
            **{name: datasets.Value("string") for name in plan.columns},
        }
    )
    if streaming:
        return datasets.IterableDataset.from_generator(rows_of, features, asked)
    return datasets.Dataset.from_generator(
        rows_of,
        features=features,
        gen_kwargs=asked,
        split=datasets.NamedSplit(split),
        cache_dir=None if folder is None else str(folder),
        writer_batch_size=max(1, WRITTEN_BYTES // plan.row_bytes),
    )


def rows_of(root: str, split: str, fingerprint: str) -> Iterator[dict[str, Any]]:
    """Every row; the arguments are all that decides them, so ``datasets`` knows them again."""
    cache = gaam_cache.open_cache(root)
    plan, part = cache.plan, cache[split]
    if plan.fingerprint != fingerprint:
        raise CacheError("another cache lies there by now", where=root)
    columns: dict[str, Any] = {
        **{embeddings_key(plan, name): part.pooled(name) for name in plan.pooling},
        "label": part.labels.tolist(),
        "num_tokens": part.num_tokens.tolist(),
        **{name: part.column(name) for name in plan.columns},
    }
    for values in zip(*columns.values(), strict=True):  # states are read some rows at a time
        yield dict(zip(columns, values, strict=True))
