"""Cauchy gate."""

import math

import torch
from torch import Tensor

from gaam_decoder.attention.frames.density import DensityGate, Learned

ALIASES = ("lorentz", "lorentzian")


class Cauchy(DensityGate):
    """A Cauchy gate with learned half-width; heavy tails never cut a layer off.

    Formula: ``w = 1 / (1 + r^2 / gamma^2)``, with r as in ``DensityGate``.

    ``gamma``, the half-width at half the peak, is (heads, hidden_size), starts at 1 and
    is clamped to at least 1e-3 where it is used. The gate is ``student-t`` with nu
    fixed at 1 and ``xi = gamma^2``: training cannot make its tails lighter.

    Source: this project's own: the Cauchy distribution with location and scale in place
    of the Gaussian of arXiv 2401.11143.
    """

    learns = (Learned("gamma", start=1.0),)

    @staticmethod
    def density(r: Tensor, gamma: Tensor) -> Tensor:
        """``1 / (1 + r^2 / gamma^2)``."""
        return torch.reciprocal(1 + (r * (1 / gamma)).square())

    @staticmethod
    def constant(gamma: Tensor) -> Tensor:
        """``1 / (pi gamma)``."""
        return 1 / (math.pi * gamma)
