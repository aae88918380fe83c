"""A split of a cache as a data set of ``torch``: L layers, D hidden size, B rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from gaam_cache.store.read import ShardedArray


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
