"""The mean over tokens."""

import torch
from torch import Tensor

from gaam_cache.encoders.poolings.base import Pooling, filled


class Mean(Pooling):
    """Mean over the real tokens, accumulated in float32 (float64 for float64 input)."""

    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        """Return the mean state of every row, (B, D) in float32 or float64."""
        # Half precision would lose digits in a long sum.
        dtype = torch.promote_types(x_BTD.dtype, torch.float32)
        sum_BD = filled(x_BTD, length_B, 0).sum(1, dtype=dtype)
        return sum_BD / length_B[:, None].to(dtype)
