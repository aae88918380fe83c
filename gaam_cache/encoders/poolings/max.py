"""The largest value over tokens."""

import torch
from torch import Tensor

from gaam_cache.encoders.poolings.base import Pooling, filled


class Max(Pooling):
    """Largest value of every feature over the real tokens."""

    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        """Return the maximum of every feature over a row, (B, D) in float32."""
        # At minus infinity, padding is never the maximum.
        return filled(x_BTD, length_B, -torch.inf).amax(1).float()
