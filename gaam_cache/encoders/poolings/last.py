"""The state of the last token."""

import torch
from torch import Tensor

from gaam_cache.encoders.poolings.base import Pooling


class Last(Pooling):
    """State of the last real token, the summary of a causal encoder."""

    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        """Return the last real state of every row, (B, D) in float32."""
        row_B = torch.arange(x_BTD.shape[0], device=x_BTD.device)
        return x_BTD[row_B, length_B - 1].float()
