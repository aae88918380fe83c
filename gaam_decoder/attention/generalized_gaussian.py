"""Generalised Gaussian gate: the data choose between Laplace, Gauss and the rest."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

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

    learns = (Learned("alpha", start=2.0), Learned("beta", start=2.0))

    @staticmethod
    def density(r: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        """``exp(-(|r| / alpha)^beta)``."""
        t = r.abs() * (1 / alpha)
        tiny = t < SMALLEST
        # both branches of a where have a gradient: neither may be infinite
        exponent = beta * torch.log(torch.where(tiny, 1.0, t))
        power = torch.exp(exponent.clamp_max(LARGEST_EXPONENT))
        return torch.exp(-torch.where(tiny, 0.0, power))

    @staticmethod
    def constant(alpha: Tensor, beta: Tensor) -> Tensor:
        """``beta / (2 alpha Gamma(1 / beta))``."""
        return torch.exp(torch.log(beta / (2 * alpha)) - torch.lgamma(1 / beta))
