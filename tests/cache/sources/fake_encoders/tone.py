"""Two layers: the mean of a tone's samples, and that of their squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.errors import DataError


class ToneEncoder(Encoder):
    """How loud a tone is."""

    @classmethod
    def open(cls, config: ExtractConfig) -> Encoder:
        """There are no weights."""
        made = cls()
        made.name, made.revision, made.max_length = config.encoder, None, 100
        made.device, made.dtype, made.batching = torch.device("cpu"), "float32", "alone"
        return made

    def identity(self) -> dict[str, Any]:
        """Nothing decides its numbers but what it is."""
        return {"dtype": self.dtype, "max_length": 100, "pooling": ["mean"], "layers": "powers"}

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Samples between 0 and 1."""
        items = [np.frombuffer(row.samples(), np.uint8) / np.float32(255) for row in rows]
        return Inputs(items=items, lengths=[len(i) for i in items], truncated=[False] * len(items))

    def refuse_empty(self, row: Any, where: str) -> DataError:
        """There is none."""
        return DataError("a tone is silent", where=where)

    def load(self) -> None:
        """There are no weights."""
        self.num_layers, self.hidden_size = 2, 1

    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Means of powers."""
        return {"mean": torch.stack([torch.tensor([[x.mean()], [(x**2).mean()]]) for x in items])}
