"""Skewed Gaussian gate."""

import math

import torch
from torch import Tensor
from torch.special import erfcx

from gaam_decoder.attention.frames.density import DensityGate, Learned

NEWTON_STEPS = 12
"""Enough for abs(a) up to 1e3: from 0, Newton's method moves towards the mode alone."""
TAIL = -0.7
"""For ``x / sqrt(2)`` below it, erfcx computes Phi(x), without cancellation."""


class SkewGaussian(DensityGate):
    """A skew-normal gate (SGA) with learned variance and skewness, divided by its peak.

    Formula: ``w = exp(-r^2 / (2 xi)) 2 Phi(a r / sqrt(xi)) / peak``, Phi the normal
    distribution function, with r as in ``DensityGate``.

    ``xi``, the variance, starts at 2 and is clamped to at least 1e-3 where it is used.
    ``a``, the skewness, starts at 0, where the gate is ``gaam``. Both are (heads,
    hidden_size).

    Numerics:
        The peak has no closed form. Newton's method finds its place on the logarithm of
        the density, which is concave. The slope at the peak is 0, so the gradient does
        not pass through the search.

    Source: the exact form of Chen & Li 2023 was not available; this is the textbook
    skew-normal of Azzalini 1985.
    """

    learns = (Learned("xi", start=2.0), Learned("a", start=0.0, floor=None))
    # the search for the peak needs the parameters alone
    expands_parameters = False

    @staticmethod
    def density(r: Tensor, xi: Tensor, a: Tensor) -> Tensor:
        """``exp(-r^2 / (2 xi)) 2 Phi(a r / sqrt(xi)) / peak``."""
        return torch.exp(_log_density(r * torch.rsqrt(xi), a) - _log_peak(a))

    @staticmethod
    def constant(xi: Tensor, a: Tensor) -> Tensor:
        """``peak / sqrt(2 pi xi)``: the constant of the skew-normal, times its peak."""
        return torch.exp(_log_peak(a) - 0.5 * torch.log(2 * math.pi * xi))


def _log_density(u: Tensor, a: Tensor) -> Tensor:
    """``log(exp(-u^2 / 2) 2 Phi(a u))``."""
    return -0.5 * u.square() + _log_ndtr(a * u) + math.log(2)


def _log_peak(a: Tensor) -> Tensor:
    """The largest ``_log_density`` over all u."""
    return _log_density(_mode(a.detach()), a)


def _mode(a: Tensor) -> Tensor:
    """Where ``exp(-u^2 / 2) Phi(a u)`` is largest, by Newton's method."""
    u = torch.zeros_like(a)
    for _ in range(NEWTON_STEPS):
        v = a * u
        log_phi = -0.5 * v.square() - 0.5 * math.log(2 * math.pi)
        # the inverse Mills ratio, phi / Phi
        mills = torch.exp(log_phi - _log_ndtr(v))
        # the derivatives of -u^2 / 2 + log Phi(a u)
        slope = -u + a * mills
        curvature = -1 - a.square() * mills * (v + mills)
        u = u - slope / curvature
    return u


def _log_ndtr(x: Tensor) -> Tensor:
    """``log Phi(x)``; ``torch.special.log_ndtr`` cannot be stacked over seeds."""
    z = x / math.sqrt(2)
    # both branches of a where have a gradient: each is kept where it is finite
    z_in_tail = z.clamp_max(TAIL)
    z_elsewhere = z.clamp_min(TAIL)
    log_in_tail = torch.log(0.5 * erfcx(-z_in_tail)) - z_in_tail.square()
    log_elsewhere = torch.log1p(-0.5 * torch.erfc(z_elsewhere))
    return torch.where(z < TAIL, log_in_tail, log_elsewhere)
