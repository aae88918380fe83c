"""Scaled dot-product attention of learned queries.

B batch, L layers, D hidden size, H heads.
"""

import torch
from torch import Tensor

from gaam_decoder.attention.frames.pooling import LayerPooling

ALIASES = ("dot-product",)


class Dot(LayerPooling):
    """Learned queries read the layers by scaled dot products.

    Formula: ``y_h = sum_l softmax_l(q_h . k_l / sqrt(D)) x_l``, k the layers normalised
    over features.

    The queries q (heads, hidden_size) start normal with standard deviation 0.1.

    Args:
        heads: learned queries.

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1, with a parameter as the
    query. Normalised keys are this project's choice.
    """

    def weights(self, key_BLD: Tensor) -> Tensor:
        """``softmax_l(q_h . k_l / sqrt(D))``, (B, H, L)."""
        score_BLH = key_BLD @ self.query.T / self.hidden_size**0.5
        return torch.softmax(score_BLH, dim=1).transpose(1, 2)
