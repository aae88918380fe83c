"""Asymmetric Gaussian gate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gaam_decoder.attention._density import DensityGate, positive


class AsymmetricGaussian(DensityGate):
    """A two-piece normal gate (bi-SGA): one variance left of the centre, one right of it.

    Formula: ``w = exp(-r^2 / (2 xi_left))`` for r < 0, ``exp(-r^2 / (2 xi_right))`` else, with r as
    in ``DensityGate``.

    Both variances are (heads, hidden_size), start at 2 and are clamped to at least 1e-3 where they
    are used. Equal variances are ``gaam``.

    Source: the exact form of Chen & Li 2023 was not available; this is the textbook two-piece
    normal distribution.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.xi_left = self._parameter(2.0)
        self.xi_right = self._parameter(2.0)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi))`` with the variance of r's side."""
        left_H1D = -0.5 / positive(self.xi_left)[:, None]
        right_H1D = -0.5 / positive(self.xi_right)[:, None]
        return torch.exp(r_BHGD.square() * torch.where(r_BHGD < 0, left_H1D, right_H1D))

    def constant(self) -> Tensor:
        """``sqrt(2 / pi) / (sqrt(xi_left) + sqrt(xi_right))``."""
        widths = positive(self.xi_left).sqrt() + positive(self.xi_right).sqrt()
        return math.sqrt(2 / math.pi) / widths

    def shape_parameters(self) -> dict[str, Tensor]:
        """``xi_left`` and ``xi_right``, (H, D)."""
        return {"xi_left": positive(self.xi_left), "xi_right": positive(self.xi_right)}
