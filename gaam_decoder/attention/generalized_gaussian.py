"""Generalised Gaussian gate: Laplace, Gauss and other shapes, as the data decide."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

SMALLEST_RATIO = 1e-6
"""Smaller ratios |r| / alpha count as 0: for beta < 1 the slope is infinite there."""
LARGEST_EXPONENT = math.log(100.0)
"""exp(-100) is 4e-44: larger powers leave neither weight nor gradient."""


class GeneralizedGaussian(DensityGate):
    """A generalised Gaussian gate with learned scale and shape.

    Formula: ``w = exp(-(|r| / alpha)^beta)``, with r as in ``DensityGate``.

    ``alpha``, the scale, and ``beta``, the shape, are (heads, hidden_size). Both start
    at 2, which is the Gaussian gate with xi = 2, and are clamped to at least 1e-3 where
    they are used. ``beta = 1`` is ``laplace``, ``beta = 2`` is ``gaam``, a large beta
    is a window. The learned beta says, for every head, which distribution fits the
    data.

    Source: Nadarajah 2005, doi 10.1080/02664760500079464, equation 1, divided by its
    peak.
    """

    learns = (Learned("alpha", start=2.0), Learned("beta", start=2.0))

    @staticmethod
    def density(r: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        """``exp(-(|r| / alpha)^beta)``."""
        ratio = r.abs() * (1 / alpha)
        is_tiny = ratio < SMALLEST_RATIO
        # both branches of a where have a gradient, and neither may be infinite
        exponent = beta * torch.log(torch.where(is_tiny, 1.0, ratio))
        power = torch.exp(exponent.clamp_max(LARGEST_EXPONENT))
        return torch.exp(-torch.where(is_tiny, 0.0, power))

    @staticmethod
    def constant(alpha: Tensor, beta: Tensor) -> Tensor:
        """``beta / (2 alpha Gamma(1 / beta))``."""
        return torch.exp(torch.log(beta / (2 * alpha)) - torch.lgamma(1 / beta))
