"""Asymmetric Gaussian gate."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned


class AsymmetricGaussian(DensityGate):
    """A two-piece normal gate (bi-SGA): a variance left of the centre, another right.

    Formula: ``w = exp(-r^2 / (2 xi_left))`` for r < 0, ``exp(-r^2 / (2 xi_right))``
    else, with r as in ``DensityGate``.

    The variances ``xi_left`` and ``xi_right`` are (heads, hidden_size), start at 2 and
    are clamped to at least 1e-3 where they are used. With equal variances the gate is
    ``gaam``.

    Source: the exact form of Chen & Li 2023 was not available; this is the textbook
    two-piece normal distribution.
    """

    learns = (Learned("xi_left", start=2.0), Learned("xi_right", start=2.0))

    @staticmethod
    def density(r: Tensor, xi_left: Tensor, xi_right: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi))``, xi the variance on the side of r."""
        factor = torch.where(r < 0, -0.5 / xi_left, -0.5 / xi_right)
        return torch.exp(r.square() * factor)

    @staticmethod
    def constant(xi_left: Tensor, xi_right: Tensor) -> Tensor:
        """``sqrt(2 / pi) / (sqrt(xi_left) + sqrt(xi_right))``."""
        return math.sqrt(2 / math.pi) / (xi_left.sqrt() + xi_right.sqrt())
