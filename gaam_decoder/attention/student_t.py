"""Student-t gate."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

ALIASES = ("student", "t")


class StudentT(DensityGate):
    """A Student-t gate with learned degrees of freedom and scale: heavier tails.

    Formula: ``w = (1 + r^2 / (nu xi))^(-(nu + 1) / 2)``, with r as in ``DensityGate``.

    ``nu``, the degrees of freedom, starts at 5 and ``xi``, the squared scale, at 1.2,
    so that the variance ``xi nu / (nu - 2)`` is 2. Both are (heads, hidden_size) and
    clamped to at least 1e-3 where they are used. ``nu -> inf`` is ``gaam``.

    Source: a student proposal of 2024 that extends arXiv 2401.11143; Student's t with
    location and scale.
    """

    learns = (Learned("nu", start=5.0), Learned("xi", start=1.2))

    @staticmethod
    def density(r: Tensor, nu: Tensor, xi: Tensor) -> Tensor:
        """``(1 + r^2 / (nu xi))^(-(nu + 1) / 2)``."""
        ratio = r.square() * (1 / (nu * xi))
        return torch.exp(-0.5 * (nu + 1) * torch.log1p(ratio))

    @staticmethod
    def constant(nu: Tensor, xi: Tensor) -> Tensor:
        """``Gamma((nu + 1) / 2) / (Gamma(nu / 2) sqrt(nu pi xi))``."""
        log_gammas = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2)
        return torch.exp(log_gammas - 0.5 * torch.log(nu * math.pi * xi))
