"""Perceiver: learned latents read the layers and each other.

B batch, L layers, D hidden size, M latents, W width, Q queries, H heads, E = W / H.
"""

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.frames.softmax import (
    LayerNorm,
    Projected,
    join_heads,
    softmax_attention,
    softmax_weights,
    split_heads,
)


class _MultiHead(nn.Module):
    """Multi-head attention in W dimensions; queries (B, Q, W) read keys (B, L, W)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, query_BQW: Tensor, key_BLW: Tensor) -> Tensor:
        """Q queries read L keys: (B, Q, W), (B, L, W) -> (B, Q, W), W the width."""
        q_BHQE, k_BHLE = self._queries_and_keys(query_BQW, key_BLW)
        v_BHLE = split_heads(self.v_proj(key_BLW), self.heads)
        y_BHQE = softmax_attention(q_BHQE, k_BHLE, v_BHLE)
        y_BQW: Tensor = self.out_proj(join_heads(y_BHQE))
        return y_BQW

    def attention_map(self, query_BQW: Tensor, key_BLW: Tensor) -> Tensor:
        """Softmax weights of H heads, (B, H, Q, L): how much query i reads of key j."""
        q_BHQE, k_BHLE = self._queries_and_keys(query_BQW, key_BLW)
        return softmax_weights(q_BHQE, k_BHLE)

    def _queries_and_keys(
        self, query_BQW: Tensor, key_BLW: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries (B, H, Q, E) and keys (B, H, L, E) of H heads of size E."""
        q_BHQE = split_heads(self.q_proj(query_BQW), self.heads)
        k_BHLE = split_heads(self.k_proj(key_BLW), self.heads)
        return q_BHQE, k_BHLE


class Perceiver(Projected):
    """Latents cross-attend to the layers, then to each other.

    Formula: ``z = z0 + cross(z0, n(W_i x))``, ``z = z + self(n(z), n(z))``,
    ``z = z + mlp(n(z))``, ``y = W_o n(z)``, where n is a LayerNorm, cross and self are
    multi-head attention, and mlp has one hidden layer of width W with GELU.

    The learned latents z0 (latents, width) start normal with standard deviation 0.02.

    Args:
        latents: M.
        heads: heads of both attentions; must divide ``width``.
        width: W, dimensions of the latents.

    Source: Jaegle et al. 2021, arXiv 2103.03206, section 3, one cross-attention and one
    block.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        latents: int = 8,
        heads: int = 8,
        width: int = 256,
    ) -> None:
        super().__init__(num_layers, hidden_size)
        check_option(latents >= 1, "latents", latents, ">= 1")
        fits = heads >= 1 and width >= 1 and width % heads == 0
        check_option(fits, "heads", heads, f"a divisor of the width, {width}")
        self.latents = nn.Parameter(torch.empty(latents, width))
        nn.init.normal_(self.latents, std=0.02)
        self.in_proj = nn.Linear(hidden_size, width)
        self.in_norm = LayerNorm(width)
        self.cross = _MultiHead(width, heads)
        self.self_norm = LayerNorm(width)
        self.self_attention = _MultiHead(width, heads)
        self.mlp_norm = LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )
        self.out_norm = LayerNorm(width)
        self.out_proj = nn.Linear(width, hidden_size)

    @property
    def output_shape(self) -> tuple[int, int]:
        return len(self.latents), self.hidden_size

    @property
    def projection(self) -> nn.Linear:
        return self.out_proj

    def before_final_map(self, x_BLD: Tensor) -> Tensor:
        """M latents read the layers and each other: (B, L, D) -> (B, M, W)."""
        first_latent_BMW = self._first_latents(x_BLD)
        read_BMW = self.cross(first_latent_BMW, self._keys(x_BLD))
        latent_BMW = first_latent_BMW + read_BMW

        # one block of a transformer over the latents: attention, then the perceptron
        normed_BMW = self.self_norm(latent_BMW)
        latent_BMW = latent_BMW + self.self_attention(normed_BMW, normed_BMW)
        latent_BMW = latent_BMW + self.mlp(self.mlp_norm(latent_BMW))
        output_BMW: Tensor = self.out_norm(latent_BMW)
        return output_BMW

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """Weights of the cross-attention, (B, H, M, L)."""
        return self.cross.attention_map(self._first_latents(x_BLD), self._keys(x_BLD))

    def _first_latents(self, x_BLD: Tensor) -> Tensor:
        """z0 for every row, (B, M, W)."""
        return self.latents.expand(len(x_BLD), -1, -1)

    def _keys(self, x_BLD: Tensor) -> Tensor:
        """``n(W_i x)``, (B, L, W)."""
        key_BLW: Tensor = self.in_norm(self.in_proj(x_BLD))
        return key_BLW
