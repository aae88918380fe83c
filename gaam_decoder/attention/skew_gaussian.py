"""Skewed Gaussian gate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.special import erfcx

from gaam_decoder.attention._density import DensityGate, positive

NEWTON_STEPS = 12
"""From 0 Newton's method approaches the mode monotonically; for |a| up to 1e3 this is enough."""


class SkewGaussian(DensityGate):
    """A skew-normal gate (SGA) with learned variance and skewness, divided by its peak.

    Formula: ``w = exp(-r^2 / (2 xi)) 2 Phi(a r / sqrt(xi)) / peak``, Phi the normal distribution
    function, with r as in ``DensityGate``.

    ``xi`` starts at 2 and is clamped to at least 1e-3 where it is used; ``a``, the skewness, starts
    at 0, where the gate is ``gaam``. Both are (heads, hidden_size).

    Numerics:
        The peak has no closed form: its place is found by Newton's method on the logarithm, which
        is concave. Since the slope there is 0, the gradient does not pass through the search.

    Source: the exact form of Chen & Li 2023 was not available; this is the textbook skew-normal of
    Azzalini 1985.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.xi = self._parameter(2.0)
        self.a = self._parameter(0.0)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi)) 2 Phi(a r / sqrt(xi)) / peak``."""
        u_BHGD = r_BHGD * torch.rsqrt(positive(self.xi))[:, None]
        a_H1D = self.a[:, None]
        return torch.exp(_log_density(u_BHGD, a_H1D) - self._log_peak()[:, None])

    def constant(self) -> Tensor:
        """``peak / sqrt(2 pi xi)``: the skew-normal's constant on the density of peak 1."""
        return torch.exp(self._log_peak() - 0.5 * torch.log(2 * math.pi * positive(self.xi)))

    def shape_parameters(self) -> dict[str, Tensor]:
        """``xi`` and ``a``, (H, D)."""
        return {"xi": positive(self.xi), "a": self.a}

    def _log_peak(self) -> Tensor:
        return _log_density(_mode(self.a.detach()), self.a)


def _log_ndtr(x: Tensor) -> Tensor:
    """``log Phi(x)``; ``torch.special.log_ndtr`` cannot be stacked over seeds."""
    z = x / math.sqrt(2)
    # both branches of a where have a gradient: each is kept where it is finite
    left, right = z.clamp_max(-0.7), z.clamp_min(-0.7)
    in_tail = torch.log(0.5 * erfcx(-left)) - left.square()
    return torch.where(z < -0.7, in_tail, torch.log1p(-0.5 * torch.erfc(right)))


def _log_density(u: Tensor, a: Tensor) -> Tensor:
    return -0.5 * u.square() + _log_ndtr(a * u) + math.log(2)


def _mode(a: Tensor) -> Tensor:
    """Where ``exp(-u^2 / 2) Phi(a u)`` is largest."""
    u = torch.zeros_like(a)
    for _ in range(NEWTON_STEPS):
        v = a * u
        # the inverse Mills ratio, phi / Phi
        mills = torch.exp(-0.5 * v.square() - 0.5 * math.log(2 * math.pi) - _log_ndtr(v))
        slope = -u + a * mills
        curvature = -1 - a.square() * mills * (v + mills)
        u = u - slope / curvature
    return u
