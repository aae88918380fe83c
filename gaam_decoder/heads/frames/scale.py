"""The scale of features that fitted heads share.

N rows, F features, C classes; A = F + 1, the bias last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

BLOCK_NUMBERS = 2**22
"""Numbers that are in float64 at a time, so that the rows are never held twice."""


class Scale(NamedTuple):
    """Standardises features: ``z = (x - mean) * factor``.

    The factor is ``1 / (standard deviation * sqrt F)``, F the number of features that
    vary. So rows have a mean squared norm of 1, and a penalty or a distance means the
    same whatever the number of features.
    """

    mean_F: Tensor
    factor_F: Tensor

    @classmethod
    def of_rows(cls, x_NF: Tensor) -> Scale:
        """The scale with which these rows have mean 0 and mean squared norm 1.

        A constant feature has factor 0.
        """
        num_rows, num_features = x_NF.shape
        # Some features at a time: float64 of all of them would take too much memory.
        # One block serves all: new ones would leave holes that the heap does not reuse.
        width = min(num_features, max(1, BLOCK_NUMBERS // num_rows))
        block_NF = x_NF.new_empty((num_rows, width), dtype=torch.float64)
        variances = []
        means = []
        for columns in _slices(num_features, width):
            part_NF = block_NF[:, : columns.stop - columns.start]
            part_NF.copy_(x_NF[:, columns])
            variance, mean = torch.var_mean(part_NF, dim=0, correction=0)
            variances.append(variance)
            means.append(mean)
        variance_F = torch.cat(variances)
        mean_F = torch.cat(means)
        # rounding leaves a constant some variance
        varies_F = variance_F > 1e-12 * (variance_F + mean_F.square())
        num_varying = max(1, int(varies_F.sum()))
        # 1 / standard deviation, then the square root that gives rows norm 1
        factor_F = variance_F.clamp_min(1e-300).rsqrt() / num_varying**0.5
        return cls(mean_F, torch.where(varies_F, factor_F, 0.0))

    def standardised(self, x_NF: Tensor) -> Tensor:
        """z, (N, F), float64."""
        return x_NF.double().sub_(self.mean_F).mul_(self.factor_F)

    def standardised_in_float32(
        self, x_NF: Tensor, *, into: Tensor | None = None
    ) -> Tensor:
        """z, (N, F), rounded to float32; computed in float64, some rows at a time.

        Args:
            x_NF: raw features.
            into: memory for z, which may be that of ``x_NF``; None: new memory.
        """
        num_rows, num_features = x_NF.shape
        z_NF = torch.empty_like(x_NF, dtype=torch.float32) if into is None else into
        height = min(num_rows, max(1, BLOCK_NUMBERS // num_features))
        block_NF = x_NF.new_empty((height, num_features), dtype=torch.float64)
        for rows in _slices(num_rows, height):
            part_NF = block_NF[: rows.stop - rows.start]
            part_NF.copy_(x_NF[rows]).sub_(self.mean_F).mul_(self.factor_F)
            z_NF[rows] = part_NF
        return z_NF

    def set_map(self, linear: nn.Linear, weight_CA: Tensor) -> None:
        """Set weight and bias of a map of raw features, so that it takes the scale in.

        Args:
            linear: the map, F -> C.
            weight_CA: weights of the same map for standardised features, A = F + 1; the
                last column is the bias.
        """
        weight_CF = weight_CA[:, :-1] * self.factor_F
        bias_C = weight_CA[:, -1] - weight_CF @ self.mean_F
        linear.weight.data.copy_(weight_CF)
        linear.bias.data.copy_(bias_C)


def _slices(length: int, size: int) -> Iterator[slice]:
    """Slices of at most ``size`` that together cover ``length``."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
