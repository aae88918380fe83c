"""Chi-squared gate."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.frames.density import DensityGate, Learned

LARGEST_START = 1000.0
"""Largest k before training; float32 is not precise enough beyond."""
LOG_EPSILON = 1e-12
"""Added to q and m before their logarithms.

With it the derivative in k is finite at k = 2, and r = 0 has a logarithm."""

ALIASES = ("chi-squared", "chi-square")


class Chi2(DensityGate):
    """A chi-squared gate on r^2; with k > 2 it has two peaks, left and right of r = 0.

    Formula: ``w = (q / m)^(m/2) exp(-(q - m) / 2)``, ``q = r^2 / xi``, ``m = k - 2``,
    with r as in ``DensityGate``; at k = 2 it is ``exp(-q / 2)``, the Gaussian gate.

    ``k``, the degrees of freedom, starts at 2 and ``xi``, the squared scale, at 2; both
    are (heads, hidden_size). The weights hold ``excess = k - 2``, which is clamped to
    at least 0 where it is used. So weight decay pulls towards the Gaussian, and not out
    of the domain. xi is clamped to at least 1e-3.

    Args:
        k: degrees of freedom before training, 2 to 1,000; float32 is not precise enough
            beyond.

    Numerics:
        1e-12 is added to q and m before their logarithms: otherwise the derivative in k
        is infinite at k = 2, where training starts.

    Source: a student proposal of 2024 that extends arXiv 2401.11143; the chi-squared
    density in q, divided by its peak.
    """

    learns = (Learned("excess", start=0.0, floor=0.0), Learned("xi", start=2.0))

    def __init__(
        self, num_layers: int, hidden_size: int, *, k: float = 2.0, **more: Any
    ) -> None:
        super().__init__(num_layers, hidden_size, **more)
        check_option(2 <= k <= LARGEST_START, "k", k, f"2 to {LARGEST_START:g}")
        nn.init.constant_(self.get_parameter("excess"), k - 2)

    @staticmethod
    def density(r: Tensor, excess: Tensor, xi: Tensor) -> Tensor:
        """``(q / m)^(m/2) exp(-(q - m) / 2)``, which is 1 at its peak, ``q = m``.

        ``q = r^2 / xi``, xi the squared scale, and m is the excess, ``k - 2``.
        """
        q = r.square() * (1 / xi)
        log_ratio = torch.log(q + LOG_EPSILON) - torch.log(excess + LOG_EPSILON)
        return torch.exp(0.5 * (excess * log_ratio - (q - excess)))

    @staticmethod
    def constant(excess: Tensor, xi: Tensor) -> Tensor:
        """1 / the integral of ``density`` over r, where ``r = +-sqrt(xi q)``.

        The integral is ``sqrt(2 xi) Gamma((m + 1) / 2) (2 e / m)^(m/2)``, m the excess.
        """
        log_integral = (
            0.5 * torch.log(2 * xi)
            + torch.lgamma((excess + 1) / 2)
            + 0.5 * excess * (math.log(2) + 1 - torch.log(excess + LOG_EPSILON))
        )
        return torch.exp(-log_integral)

    @classmethod
    def curve(cls, r: Tensor, learned: Mapping[str, Tensor]) -> Tensor:
        return cls.density(r, learned["k"] - 2, learned["xi"])

    def learned(self) -> dict[str, Tensor]:
        """``offset``, ``k = 2 + excess`` and the squared scale ``xi``, each (H, D)."""
        values = super().learned()
        return {
            "offset": values["offset"],
            "k": 2 + values["excess"],
            "xi": values["xi"],
        }
