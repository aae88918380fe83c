"""Softmax attention: queries that read keys and values by scaled dot products.

B batch, H heads, Q queries, L layers, E size of a head, W = H E.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from gaam_decoder.attention.base import Attention


def split(x_BLW: Tensor, heads: int) -> Tensor:
    """The features of every layer as H heads of equal size: (B, L, W) -> (B, H, L, E)."""
    return x_BLW.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(y_BHQE: Tensor) -> Tensor:
    """The heads side by side again: (B, H, Q, E) -> (B, Q, W)."""
    return y_BHQE.transpose(1, 2).flatten(2)


class Projected(Attention):
    """Ends with a linear map of the features, which a linear head can join to its own."""

    last: ClassVar[str] = "out_proj"  # name of the map

    @abstractmethod
    def unprojected(self, x_BLD: Tensor) -> Tensor:
        """What the last map takes: (B, L, D) -> (B, L', E)."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L', D')."""
        projected: Tensor = self.get_submodule(self.last)(self.unprojected(x_BLD))
        return projected


class LayerNorm(nn.LayerNorm):
    """``nn.LayerNorm`` in the type of its parameters, whatever autocast makes of its input."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 as there
        return super().forward(input.to(self.weight.dtype))


def softmax_weights(
    query_BHQE: Tensor, key_BHLE: Tensor, scale: float | None = None
) -> Tensor:
    """``softmax_l(scale * q . k_l)``, (B, H, Q, L): how much each query reads of each layer.

    Numerics:
        Written out: of a few layers or latents plain products can be stacked over seeds, compiled,
        and run in bfloat16 under autocast, where the softmax stays float32. The library's fused
        kernels, for long sequences, cannot. Each factor is scaled before the product, which may
        overflow where its scaled value does not.

    Args:
        query_BHQE: queries.
        key_BHLE: keys.
        scale: default ``1 / sqrt(E)``.
    """
    root = (query_BHQE.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    return torch.softmax(
        (root * query_BHQE) @ (root * key_BHLE).transpose(-1, -2), dim=-1
    )


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
