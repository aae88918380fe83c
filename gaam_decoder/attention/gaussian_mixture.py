"""Product of Gaussians over the layers of a group, published as a mixture.

B batch, L layers, D hidden size, H heads, G = L / H layers of one head, K components.
"""

import math

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import (
    VARIANCE_FLOOR,
    positive,
    split_into_groups,
)
from gaam_decoder.attention.frames.num_heads import heads_over_layers

SUM_FLOOR = 1e-8
"""Least sum of the products over a group, which divides them."""
WIDTH_FLOOR = 1e-6
"""Least c^2 where it is used."""


class GaussianMixture(Attention):
    """Weights over the layers of a group: a normalised product of K Gaussians.

    In spite of its name it is no mixture: the Gaussians are multiplied, not added.

    Formula: ``w_l = p_l / max(sum_l p_l, 1e-8)``, ``p = prod_k N(r_k; 0, c_k^2)``,
    ``r_k = (x - (mean + offset_k)) / sqrt(var + 1e-8)``; the gate is ``y = x w``. Mean
    and variance are taken over the layers of a group; the variance divides by their
    number minus 1.

    A product of Gaussians is a Gaussian again: K adds parameters, but no shapes.
    ``offset`` and ``c`` are (heads, K). Offsets start at 0, and c at ``sqrt(2 K)``: the
    product starts as the Gaussian of variance 2, as ``gaam`` does. c^2 is clamped to at
    least 1e-6 where it is used.

    Args:
        heads: H; must divide L and leave groups of two or more layers.
        components: K.

    Numerics:
        Products are computed as sums of logarithms: a product of densities leaves the
        range of float32.

    Source: published code of arXiv 2401.11143, without the initial values of its
    parameters, which were not available.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int | None = None,
        components: int = 3,
    ) -> None:
        super().__init__(num_layers, hidden_size)
        check_option(components >= 1, "components", components, ">= 1")
        self.heads = heads_over_layers(num_layers, heads)
        shape = (self.heads, components)
        # the centre of each Gaussian above the mean, and its standard deviation
        self.offset = nn.Parameter(torch.zeros(shape))
        # a product of K Gaussians of variance 2 K is one of variance 2
        self.c = nn.Parameter(torch.full(shape, math.sqrt(2 * components)))

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.attention_map(x_BLD).to(x_BLD.dtype)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The weights, (B, L, D); over the layers of a group they sum to 1.

        ``w = p / max(sum p, 1e-8)`` over the G layers of a group, where
        ``p = prod_k N(r_k; 0, c_k^2)`` is a product of K Gaussian densities.
        """
        x_BHGD = split_into_groups(x_BLD, self.heads)
        group_size = x_BHGD.shape[2]
        centred_BHGD = x_BHGD - x_BHGD.mean(2, keepdim=True)
        variance_BH1D = centred_BHGD.square().sum(2, keepdim=True) / (group_size - 1)
        deviation_BH1D = (variance_BH1D + VARIANCE_FLOOR).sqrt()

        # log p without prod_k 1 / sqrt(2 pi c_k^2), which the layers of a group share
        squared_c_HK = self._squared_width()
        log_p_BHGD = torch.zeros_like(x_BHGD)
        components = zip(self.offset.unbind(1), squared_c_HK.unbind(1), strict=True)
        for offset_H, squared_c_H in components:
            r_BHGD = (centred_BHGD - offset_H[:, None, None]) / deviation_BH1D
            log_p_BHGD = log_p_BHGD - r_BHGD.square() / (2 * squared_c_H[:, None, None])

        # sum p is left without this factor, so its floor is divided by the factor
        log_factor_H = -0.5 * torch.log(2 * math.pi * squared_c_HK).sum(1)
        log_floor_H = math.log(SUM_FLOOR) - log_factor_H
        log_sum_BH1D = torch.logsumexp(log_p_BHGD, dim=2, keepdim=True)
        log_sum_BH1D = torch.maximum(log_sum_BH1D, log_floor_H[:, None, None])
        return torch.exp(log_p_BHGD - log_sum_BH1D).flatten(1, 2)

    def _squared_width(self) -> Tensor:
        """c^2 in its domain, (H, K)."""
        return positive(self.c.square(), floor=WIDTH_FLOOR)

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and ``c`` (positive), each (H, K)."""
        return {"offset": self.offset, "c": self._squared_width().sqrt()}
