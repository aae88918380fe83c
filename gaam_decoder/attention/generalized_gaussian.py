"""Generalised Gaussian gate: the data choose between Laplace, Gauss and the rest."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gaam_decoder.attention._density import DensityGate, positive

SMALLEST = 1e-6
"""Ratios |r| / alpha below count as 0: for beta < 1 the density has an infinite slope there."""
LARGEST_EXPONENT = math.log(100.0)
"""exp(-100) is 4e-44: what is beyond has neither weight nor gradient, nor an overflow."""


class GeneralizedGaussian(DensityGate):
    """A generalised Gaussian gate with learned scale and shape.

    Formula: ``w = exp(-(|r| / alpha)^beta)``, with r as in ``DensityGate``.

    ``alpha``, the scale, and ``beta``, the shape, are (heads, hidden_size), start at 2 (the
    Gaussian gate with xi = 2) and are clamped to at least 1e-3 where they are used. ``beta = 1`` is
    ``laplace``, ``beta = 2`` is ``gaam``, large beta a window: the learned beta says, per head,
    which distribution the data want.

    Source: Nadarajah 2005, doi 10.1080/02664760500079464, equation 1, divided by its peak.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.alpha = self._parameter(2.0)
        self.beta = self._parameter(2.0)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``exp(-(|r| / alpha)^beta)``."""
        t_BHGD = r_BHGD.abs() * (1 / positive(self.alpha)[:, None])
        tiny_BHGD = t_BHGD < SMALLEST
        # both branches of a where have a gradient: neither may be infinite
        log_t_BHGD = torch.log(torch.where(tiny_BHGD, 1.0, t_BHGD))
        exponent_BHGD = positive(self.beta)[:, None] * log_t_BHGD
        power_BHGD = torch.exp(exponent_BHGD.clamp_max(LARGEST_EXPONENT))
        return torch.exp(-torch.where(tiny_BHGD, 0.0, power_BHGD))

    def constant(self) -> Tensor:
        """``beta / (2 alpha Gamma(1 / beta))``."""
        alpha, beta = positive(self.alpha), positive(self.beta)
        return torch.exp(torch.log(beta / (2 * alpha)) - torch.lgamma(1 / beta))

    def shape_parameters(self) -> dict[str, Tensor]:
        """``alpha`` and ``beta``, (H, D)."""
        return {"alpha": positive(self.alpha), "beta": positive(self.beta)}
