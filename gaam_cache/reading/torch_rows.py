"""A split as a data set of torch, which a ``DataLoader`` reads in batches.

L layers, D hidden size, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from gaam_cache.cache import Split


class TorchRows(Dataset[tuple[Tensor, Tensor]]):
    """Rows of a split: (states (L, D) in float32, label); use ``Split.to_torch``.

    Nothing is read before it is asked for. A ``DataLoader`` asks for a batch at once
    (``__getitems__``), also from workers, to which this is sent as it is.

    Args:
        split: whose rows they are.
        pooling: of the states; None: the first in the cache.
    """

    def __init__(self, split: Split, pooling: str | None = None) -> None:
        self._states = split.embeddings if pooling is None else split.pooled(pooling)
        self._labels = torch.from_numpy(split.labels)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        """One row.

        Raises:
            IndexError: there is no such row.
        """
        return self.__getitems__([range(len(self))[row]])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Several rows with one look at the shards."""
        row_B = np.asarray(rows, np.int64)
        states_BLD = torch.from_numpy(self._states[row_B].astype(np.float32, copy=False))
        return list(zip(states_BLD, self._labels[torch.from_numpy(row_B)], strict=True))
