"""Product of Gaussians over the layers of a group, as published under the name of a mixture.

B batch, L layers, D hidden size, H heads, G = L / H layers of one head, K components.
"""

import math

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import VARIANCE_FLOOR, grouped, positive
from gaam_decoder.attention.frames.num_heads import heads_over_layers

SUM_FLOOR = 1e-8


class GaussianMixture(Attention):
    """Weights over the layers of a group: a product of K Gaussian densities, normalised.

    Formula: ``w_l = p_l / max(sum_l p_l, 1e-8)``, ``p = prod_k N(r_k; 0, c_k^2)``,
    ``r_k = (x - (mean + offset_k)) / sqrt(var + 1e-8)``, statistics over the group's layers, var
    with G - 1.

    A product of Gaussians is a Gaussian again: K adds parameters, not shapes. ``offset`` and ``c``
    are (heads, K). Offsets start at 0 and c at ``sqrt(2 K)``, so that the product starts as the
    Gaussian of variance 2 that ``gaam`` starts with; c^2 is at least 1e-6 where it is used.

    Args:
        heads: H; must divide L and leave groups of two or more layers.
        components: K.

    Source: published code of arXiv 2401.11143; where its parameters start was not available.
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
        self.offset = nn.Parameter(torch.zeros(self.heads, components))
        self.c = nn.Parameter(
            torch.full((self.heads, components), math.sqrt(2 * components))
        )

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.attention_map(x_BLD).to(x_BLD.dtype)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The weights, (B, L, D); over the layers of a group they sum to 1."""
        x_BHGD = grouped(x_BLD, self.heads)
        centred_BHGD = x_BHGD - x_BHGD.mean(2, keepdim=True)
        variance_BH1D = centred_BHGD.square().sum(2, keepdim=True) / (
            x_BHGD.shape[2] - 1
        )
        deviation_BH1D = (variance_BH1D + VARIANCE_FLOOR).sqrt()
        variance_HK = self._variance()
        # in logarithms: a product of densities leaves the range of float32
        log_BHGD = torch.zeros_like(x_BHGD)
        for offset_H, c2_H in zip(
            self.offset.unbind(1), variance_HK.unbind(1), strict=True
        ):
            r_BHGD = (centred_BHGD - offset_H[:, None, None]) / deviation_BH1D
            log_BHGD = log_BHGD - r_BHGD.square() / (2 * c2_H[:, None, None])
        log_constant_H = -0.5 * torch.log(2 * math.pi * variance_HK).sum(1)
        log_floor_H = math.log(SUM_FLOOR) - log_constant_H
        log_sum_BH1D = torch.logsumexp(log_BHGD, dim=2, keepdim=True)
        log_sum_BH1D = torch.maximum(log_sum_BH1D, log_floor_H[:, None, None])
        return torch.exp(log_BHGD - log_sum_BH1D).flatten(1, 2)

    def _variance(self) -> Tensor:
        return positive(self.c.square(), floor=1e-6)

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and ``c`` (positive), each (H, K)."""
        return {"offset": self.offset, "c": self._variance().sqrt()}
