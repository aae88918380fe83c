"""Student-t gate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gaam_decoder.attention._density import DensityGate, positive

ALIASES = ("student", "t", "cauchy")


class StudentT(DensityGate):
    """A Student-t gate with learned degrees of freedom and squared scale: heavier tails.

    Formula: ``w = (1 + r^2 / (nu xi))^(-(nu + 1) / 2)``, with r as in ``DensityGate``.

    ``nu``, the degrees of freedom, starts at 5 and ``xi``, the squared scale, at 1.2, so that the
    variance ``xi nu / (nu - 2)`` is 2; both are (heads, hidden_size) and clamped to at least 1e-3
    where they are used. ``nu -> inf`` is ``gaam``.

    Source: a student proposal of 2024 that extends arXiv 2401.11143; Student's t with location and
    scale.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.nu = self._parameter(5.0)
        self.xi = self._parameter(1.2)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``(1 + r^2 / (nu xi))^(-(nu + 1) / 2)``."""
        nu_H1D = positive(self.nu)[:, None]
        ratio_BHGD = r_BHGD.square() * (1 / (nu_H1D * positive(self.xi)[:, None]))
        return torch.exp(-0.5 * (nu_H1D + 1) * torch.log1p(ratio_BHGD))

    def constant(self) -> Tensor:
        """``Gamma((nu + 1) / 2) / (Gamma(nu / 2) sqrt(nu pi xi))``."""
        nu = positive(self.nu)
        log_gammas = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2)
        return torch.exp(log_gammas - 0.5 * torch.log(nu * math.pi * positive(self.xi)))

    def shape_parameters(self) -> dict[str, Tensor]:
        """``nu`` and ``xi``, (H, D)."""
        return {"nu": positive(self.nu), "xi": positive(self.xi)}
