"""Kernels of Nadaraya-Watson regression: pure functions.

Shapes are any; the last axis is the points that are weighted.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Kernel = Literal["gaussian", "boxcar", "epanechnikov"]
EDGE = 0.1
"""Width of the logistic edge, in bandwidths, that stands in for the boxcar's jump in gradients."""


def kernel_weights(u: Tensor, kernel: Kernel) -> Tensor:
    """Nadaraya-Watson weights ``K(u_i) / sum_j K(u_j)``.

    Args:
        u: distances divided by the bandwidth, >= 0, (..., points).
        kernel: 'gaussian' exp(-u^2 / 2); 'boxcar' 1 for u <= 1; 'epanechnikov' 1 - u^2 for u < 1.

    Returns:
        Weights that sum to 1, of the same shape.

    Numerics:
        With a compact kernel no point may lie inside the window. Then the nearest point takes it
        all, as it does in the limit of a Gaussian, with a Gaussian's gradient.
        The boxcar's derivative is 0 almost everywhere. Its gradient is that of the same window with
        a logistic edge, ``sigmoid((1 - u) / 0.1)``; its value is exact.
    """
    nearest = torch.softmax(-0.5 * u.square(), dim=-1)
    if kernel == "gaussian":
        return nearest
    if kernel == "boxcar":
        soft = torch.sigmoid((1 - u) / EDGE)
        inside = u <= 1
        k = inside.to(u.dtype) + (soft - soft.detach())
    else:
        inside = u < 1
        k = torch.where(inside, 1 - u.square(), 0.0)
    total = k.sum(-1, keepdim=True)
    empty = ~inside.any(-1, keepdim=True)
    hard = torch.zeros_like(u).scatter(-1, u.argmin(-1, keepdim=True), 1.0)
    alone = hard + (nearest - nearest.detach())
    return torch.where(empty, alone, k / torch.where(empty, 1.0, total))
