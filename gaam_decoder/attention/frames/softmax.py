"""Softmax attention: queries read keys and values by scaled dot products.

B batch, H heads, Q queries, L layers, E size of a head, W = H E; L' and D' are those of
a mechanism's output.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from gaam_decoder.attention.base import Attention


def split_heads(x_BLW: Tensor, heads: int) -> Tensor:
    """Cut the features of every layer into H heads: (B, L, W) -> (B, H, L, E)."""
    return torch.unflatten(x_BLW, -1, (heads, -1)).transpose(1, 2)


def join_heads(y_BHQE: Tensor) -> Tensor:
    """Put the heads side by side again: (B, H, Q, E) -> (B, Q, W)."""
    return y_BHQE.transpose(1, 2).flatten(2)


class Projected(Attention):
    """A mechanism that ends with a linear map of the features, ``projection``."""

    @property
    @abstractmethod
    def projection(self) -> nn.Linear:
        """The map E -> D'."""

    @abstractmethod
    def before_final_map(self, x_BLD: Tensor) -> Tensor:
        """The input of ``projection``: (B, L, D) -> (B, L', E)."""

    @property
    def final_map(self) -> nn.Linear | None:
        # a subclass that overrides forward() goes on after the map
        if type(self).forward is not Projected.forward:
            return None
        return self.projection

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L', D')."""
        y_BLD: Tensor = self.projection(self.before_final_map(x_BLD))
        return y_BLD


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` in the dtype of its parameters, also under autocast."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 the name in torch
        return super().forward(input.to(self.weight.dtype))


def softmax_weights(
    query_BHQE: Tensor, key_BHLE: Tensor, scale: float | None = None
) -> Tensor:
    """``softmax_l(scale * q . k_l)``, (B, H, Q, L): what queries read of layers.

    Numerics:
        The products are written out. For a few layers, plain products can be stacked
        over seeds, compiled, and run in bfloat16 under autocast, where the softmax
        stays float32. The fused kernels of torch are made for long sequences and can do
        none of this. Both factors are scaled by ``sqrt(scale)`` before the product: an
        unscaled product may overflow.

    Args:
        query_BHQE: queries.
        key_BHLE: keys.
        scale: default ``1 / sqrt(E)``.
    """
    if scale is None:
        scale = query_BHQE.shape[-1] ** -0.5
    root_scale = scale**0.5
    score_BHQL = (root_scale * query_BHQE) @ (root_scale * key_BHLE).transpose(-1, -2)
    return torch.softmax(score_BHQL, dim=-1)


def softmax_attention(
    query_BHQE: Tensor, key_BHLE: Tensor, value_BHLE: Tensor, scale: float | None = None
) -> Tensor:
    """``sum_l softmax_l(scale * q . k_l) v_l``, (B, H, Q, E).

    Args:
        query_BHQE: queries.
        key_BHLE: keys.
        value_BHLE: values.
        scale: default ``1 / sqrt(E)``.

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1.
    """
    return softmax_weights(query_BHQE, key_BHLE, scale) @ value_BHLE
