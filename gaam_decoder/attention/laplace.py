"""Laplace gate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gaam_decoder.attention._density import DensityGate, positive

ALIASES = ("laplacian", "double-exponential")


class Laplace(DensityGate):
    """A Laplace gate with learned mean offset and diversity.

    Formula: ``w = exp(-|r| / b)``, with r as in ``DensityGate``.

    ``b``, the diversity, is (heads, hidden_size), starts at 1 (variance 2, as the Gaussian gate
    does) and is clamped to at least 1e-3 where it is used. The default standardises by mean and
    standard deviation, so that ``laplace`` and ``gaam`` differ in the density alone;
    ``location=median`` is the maximum-likelihood form.

    Source: a student proposal of 2024 that extends arXiv 2401.11143; it writes the density with
    its constant ``1 / (2 b)``, which is ``normalize=density`` here.
    """

    def __init__(self, num_layers: int, hidden_size: int, **options: Any) -> None:
        super().__init__(num_layers, hidden_size, **options)
        self.b = self._parameter(1.0)

    def density(self, r_BHGD: Tensor) -> Tensor:
        """``exp(-|r| / b)``."""
        rate_H1D = -1 / positive(self.b)[:, None]
        return torch.exp(r_BHGD.abs() * rate_H1D)

    def constant(self) -> Tensor:
        """``1 / (2 b)``."""
        return 0.5 / positive(self.b)

    def shape_parameters(self) -> dict[str, Tensor]:
        """``b``, (H, D)."""
        return {"b": positive(self.b)}
