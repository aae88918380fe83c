"""Rows of a cache on their way to a decoder.

B batch, N rows, L layers, D hidden size.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.cache import ShardedArray

RESIDENT_SHARE = 0.5
"""Share of the free memory that the rows may take; a larger cache stays on disk."""


class Features:
    """Float32 batches of embeddings: from memory if they fit, else from the memory map."""

    def __init__(self, array: ShardedArray, device: torch.device) -> None:
        """Load ``array`` if it fits into the free memory of ``device``."""
        self.device = device
        self._array = array
        self._resident: Tensor | None = None
        if np.prod(array.shape) * array.dtype.itemsize <= RESIDENT_SHARE * _free_bytes(device):
            self._resident = torch.from_numpy(array[:]).to(device)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._array)

    def batch(self, row_B: NDArray[np.int64]) -> Tensor:
        """Rows by number, (B, L, D) float32 on the device."""
        if self._resident is not None:
            return self._resident[torch.from_numpy(row_B).to(self.device)].float()
        return torch.from_numpy(self._array[row_B]).to(self.device).float()


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
