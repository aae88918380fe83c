"""Scalar mix: a learned weighted sum of the layers.

B batch, L layers, D hidden size.
"""

import torch
from torch import Tensor, nn

from gaam_decoder.attention.base import Attention

ALIASES = ("elmo",)


class ScalarMix(Attention):
    """A control: one softmax weight for each layer, and one scale.

    Formula: ``y = gamma * sum_l softmax(s)_l x_l``.

    ``s`` (L,) starts at 0, ``gamma`` (1,) at 1.

    Source: Peters et al. 2018 (ELMo), arXiv 1802.05365, equation 1; the probe of
    SUPERB, arXiv 2105.01051.
    """

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__(num_layers, hidden_size)
        self.s = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(1))

    @property
    def output_shape(self) -> tuple[int, int]:
        return 1, self.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, 1, D)."""
        weight_L = torch.softmax(self.s, dim=0).to(x_BLD.dtype)
        mixed_BD = torch.einsum("l,bld->bd", weight_L, x_BLD)
        return (self.gamma * mixed_BD).unsqueeze(1)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The layer weights, the same for every row, (B, L, 1)."""
        return torch.softmax(self.s, dim=0)[:, None].expand(len(x_BLD), -1, -1)

    def learned(self) -> dict[str, Tensor]:
        """``weight``, the softmax over layers (L,), and ``gamma`` (1,)."""
        return {"weight": torch.softmax(self.s, dim=0), "gamma": self.gamma}
