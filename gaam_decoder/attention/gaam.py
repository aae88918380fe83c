"""Gaussian adaptive attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gaam_decoder.attention._density import DensityGate, positive

ALIASES = ("gaussian", "normal")


class GAAM(DensityGate):
    """A Gaussian gate with learned mean offset and variance.

    Formula: ``w = exp(-r^2 / (2 xi))``, with r as in ``DensityGate``.

    ``xi``, the scaled variance, is (heads, hidden_size), starts at 2 and is clamped to at least
    1e-3 where it is used. 'GAAMv1' of the paper is 8 heads on 24 or 40 layers, the default there;
    'GAAMv2' is ``heads=1``.

    Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, equations 1 to 6; published code.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.xi = self._parameter(2.0)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi))``."""
        rate_H1D = -0.5 / positive(self.xi)[:, None]
        return torch.exp(r_BHGD.square() * rate_H1D)

    def constant(self) -> Tensor:
        """``1 / sqrt(2 pi xi)``."""
        return torch.rsqrt(2 * math.pi * positive(self.xi))

    def shape_parameters(self) -> dict[str, Tensor]:
        """``xi``, (H, D)."""
        return {"xi": positive(self.xi)}
