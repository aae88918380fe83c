"""Additive attention of learned queries.

B batch, L layers, D hidden size, H heads, A hidden units.
"""

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.frames.num_heads import DEFAULT_HEADS
from gaam_decoder.attention.frames.pooling import LayerPooling

ALIASES = ("bahdanau",)


class Additive(LayerPooling):
    """Learned queries read the layers by additive (Bahdanau) scores.

    Formula: ``y_h = sum_l softmax_l(w . tanh(W_q q_h + W_k k_l)) x_l``, k the layers
    normalised over features.

    The queries q (heads, hidden_size) start normal with standard deviation 0.1; W_q and
    W_k (width, hidden_size) start Xavier-uniform; w (width,) starts normal with
    standard deviation ``width^-1/2``.

    Args:
        heads: learned queries.
        width: A, hidden units of the score.

    Source: Bahdanau, Cho, Bengio 2015, arXiv 1409.0473, appendix A.1.2, with a
    parameter as the query. Normalised keys are this project's choice.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int = DEFAULT_HEADS,
        width: int = 64,
    ) -> None:
        super().__init__(num_layers, hidden_size, heads=heads)
        check_option(width >= 1, "width", width, ">= 1")
        self.query_proj = nn.Linear(hidden_size, width, bias=False)
        self.key_proj = nn.Linear(hidden_size, width, bias=False)
        self.w = nn.Parameter(torch.empty(width))
        for module in (self.query_proj, self.key_proj):
            nn.init.xavier_uniform_(module.weight)
        nn.init.normal_(self.w, std=width**-0.5)

    def weights(self, key_BLD: Tensor) -> Tensor:
        """``softmax_l(w . tanh(W_q q_h + W_k k_l))``, (B, H, L); A hidden units."""
        query_H1A = self.query_proj(self.query)[:, None]
        hidden_BHLA = torch.tanh(query_H1A + self.key_proj(key_BLD)[:, None])
        return torch.softmax(hidden_BHLA @ self.w, dim=-1)
