"""One batch of sounds through a model of the transformers library.

B batch, T rows of features, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.encoders._audio.clip import Clip
from gaam_cache.encoders._audio.hearing import Hearing
from gaam_cache.encoders._model.forward import Batch, Forward, Unusable


class SoundForward(Forward):
    """Features, filled with zeros behind the sound."""

    reads: ClassVar[str] = "features"
    unit: ClassVar[str] = "samples"

    def __init__(
        self, model: nn.Module, *, device: torch.device, pooling: Sequence[str], hearing: Hearing
    ) -> None:
        super().__init__(model, device=device, pooling=pooling)
        self._hearing = hearing
        self._dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        if hearing.published:
            self.takes_mask = False

    def batch(self, items: Sequence[Clip]) -> Batch:
        """Features as the model takes them, in its arithmetic."""
        width = max(len(clip.x) for clip in items)
        x_BT = np.zeros((len(items), width, *items[0].x.shape[1:]), dtype=np.float32)
        for row, clip in enumerate(items):
            x_BT[row, : len(clip.x)] = clip.x
        real_B = np.array([clip.real for clip in items])
        pooled_B = np.array([self._hearing.positions(clip.extent) for clip in items])
        features = self._hearing.features.shaped(self.to_device(x_BT)).to(self._dtype)
        return Batch(
            inputs={self._hearing.input_name: features},
            length_B=self.to_device(pooled_B),
            padded=int(real_B.min()) < width,
            positions=self._hearing.positions_of_features(width),
            mask=self.to_device((np.arange(width) < real_B[:, None]).astype(np.int64)),
        )

    def mask_of(self, batch: Batch) -> Tensor:
        """(B, T)."""
        assert batch.mask is not None
        return batch.mask

    def _reduce(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        if batch.positions is None or x_BTD.shape[1] < batch.positions:
            raise Unusable(f"a layer has {x_BTD.shape[1]} states, not {batch.positions}")
        return super()._reduce(x_BTD, batch)
