"""The scale of features that fitted heads share.

N rows, F features, C classes; F1 = F + 1 with the bias last.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Scale(NamedTuple):
    """Standardises features: ``z = (x - mean) * factor``.

    The factor is ``1 / (standard deviation * sqrt F)``, F the number of features that
    vary, so that rows have a mean squared norm of 1.
    """

    mean_F: Tensor
    factor_F: Tensor

    @classmethod
    def of_rows(cls, x_NF: Tensor) -> Scale:
        """The scale that standardises these rows; a constant feature has factor 0."""
        variance_F, mean_F = torch.var_mean(x_NF.double(), dim=0, correction=0)
        # rounding leaves a constant some variance
        varies_F = variance_F > 1e-12 * (variance_F + mean_F.square())
        num_varying = max(1, int(varies_F.sum()))
        inverse_F = variance_F.clamp_min(1e-300).rsqrt() / num_varying**0.5
        return cls(mean_F, torch.where(varies_F, inverse_F, 0.0))

    def standardised(self, x_NF: Tensor) -> Tensor:
        """z, (N, F), float64."""
        return x_NF.double().sub_(self.mean_F).mul_(self.factor_F)

    def for_raw_features(self, weight_CF1: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (C, F) and bias (C,) of the same linear map for raw features.

        Args:
            weight_CF1: weights for standardised features; the last column is the bias.
        """
        weight_CF = weight_CF1[:, :-1] * self.factor_F
        return weight_CF, weight_CF1[:, -1] - weight_CF @ self.mean_F
