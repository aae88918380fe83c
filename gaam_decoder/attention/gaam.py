"""Gaussian adaptive attention."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

ALIASES = ("gaussian", "normal")


class GAAM(DensityGate):
    """A Gaussian gate with learned mean offset and variance.

    Formula: ``w = exp(-r^2 / (2 xi))``, with r as in ``DensityGate``.

    ``xi``, the scaled variance, is (heads, hidden_size), starts at 2 and is clamped to
    at least 1e-3 where it is used. 'GAAMv1' of the paper has 8 heads, the default for
    its 24 and 40 layers; 'GAAMv2' is ``heads=1``.

    Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, equations 1 to 6;
    published code.
    """

    learns = (Learned("xi", start=2.0),)

    @staticmethod
    def density(r: Tensor, xi: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi))``."""
        return torch.exp(r.square() * (-0.5 / xi))

    @staticmethod
    def constant(xi: Tensor) -> Tensor:
        """``1 / sqrt(2 pi xi)``."""
        return torch.rsqrt(2 * math.pi * xi)
