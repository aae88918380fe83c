"""Gaussian context transformer: one gate per layer.

B batch, L layers, D hidden size.
"""

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.density import EPSILON, PARAMETER_FLOOR, positive


class GCT(Attention):
    """Multiplies a whole layer by a Gaussian of its mean over the features.

    Formula: ``y_l = x_l exp(-z_l^2 / (2 c^2))``, z the means of the layers over their
    features, standardised over layers with 1e-5 added to the variance.

    Layers take the place that channels have in the source. Without ``learn_scale``
    there are no parameters.

    Args:
        scale: c; with ``learn_scale`` its value before training.
        learn_scale: learn c, one number, clamped to at least 1e-3 where it is used.

    Source: Ruan et al. 2021 (GCT), CVPR, section 3; its GCT-B0 has c = 2, and GCT-B1
    learns c.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        scale: float = 2.0,
        learn_scale: bool = False,
    ) -> None:
        super().__init__(num_layers, hidden_size)
        fits = PARAMETER_FLOOR <= scale < float("inf")
        check_option(fits, "scale", scale, f"at least {PARAMETER_FLOOR:g}")
        self.learn_scale = learn_scale
        c = torch.tensor([float(scale)])
        if learn_scale:
            self.c = nn.Parameter(c)
        else:
            self.register_buffer("c", c, persistent=False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD * self.attention_map(x_BLD).to(x_BLD.dtype)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The gate of every layer, (B, L, 1)."""
        wide_BLD = x_BLD.to(torch.promote_types(x_BLD.dtype, torch.float32))
        # small differences between layers would be lost in the rounding of large means;
        # centring subtracts a constant anyway, so subtract the first layer before
        context_BL1 = (wide_BLD - wide_BLD[:, :1]).mean(2, keepdim=True)
        centred_BL1 = context_BL1 - context_BL1.mean(1, keepdim=True)
        variance_B11 = centred_BL1.square().mean(1, keepdim=True)
        z_BL1 = centred_BL1 * torch.rsqrt(variance_B11 + EPSILON)
        return torch.exp(-0.5 * (z_BL1 / positive(self.c)).square())

    def learned(self) -> dict[str, Tensor]:
        """``c`` (1,), if it is learned."""
        return {"c": positive(self.c)} if self.learn_scale else {}
