"""Nadaraya-Watson regression: a row attends to the training rows.

B batch, N training rows, K outputs.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common.errors import check_option
from gaam_decoder.heads.frames.kept_rows import KeptRows, SettingValues

Kernel = Literal["gaussian", "boxcar", "epanechnikov", "triangular"]
WIDTHS = tuple(float(width) for width in np.logspace(-2, 1, 25))
"""Widths that are tried, 0.01 to 10.

Two rows at random are about 1.4 apart. With the smallest width nearly all weight is on
the nearest row; with the largest, all rows count alike."""

ALIASES = ("kernel-regression", "attention-pooling")


class NadarayaWatsonHead(KeptRows):
    """Attention without training: the query is a row, keys are the training rows.

    Formula: ``f(q) = sum_i y_i K(|q - k_i| / h) / sum_j K(|q - k_j| / h)``; q the
    features of the row, k_i those of training row i, y_i its targets (the values), h
    the width. y is 1 for the class or labels of a row and else 0, or its numbers.

    Features are standardised on the training rows and divided by sqrt F. Logits are
    ``log(f + 0.001)`` of classes, and ``log(f + 0.001) - log(1 - f + 0.001)`` of
    labels. The head keeps every training row: 4 bytes a feature, in memory and in the
    run.

    Args:
        kernel: K: gaussian ``exp(-u^2 / 2)``; boxcar 1 for u <= 1; epanechnikov
            ``1 - u^2`` for u < 1; triangular ``1 - u`` for u < 1.
        width: h, > 0; default: the best of 25 from 0.01 to 10 on validation rows (ties:
            the lower loss, then the smaller width).

    Numerics:
        Where no training row lies in the window of a kernel other than the Gaussian,
        the nearest one gets all the weight.

    Source: Nadaraya 1964, Watson 1964; Zhang et al., Dive into Deep Learning, section
    11.2.
    """

    num_tried_values: ClassVar[int] = len(WIDTHS)
    setting: ClassVar[str] = "width"
    chosen_width: Tensor

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        num_classes: int,
        *,
        kernel: Kernel = "gaussian",
        width: float | None = None,
    ) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        is_width = width is None or 0 < width < float("inf")
        check_option(is_width, "width", width, "a positive number")
        self.kernel: Kernel = kernel
        self.width = width
        # a buffer: a run stores the width with the weights
        self.register_buffer("chosen_width", torch.ones(1))

    @property
    def candidates(self) -> Sequence[float]:
        """The width that was asked for, or the grid."""
        return WIDTHS if self.width is None else (self.width,)

    @property
    def chosen_values(self) -> SettingValues:
        """The width, a tensor of one number."""
        return self.chosen_width

    def choose(self, value: float) -> None:
        """Set the width."""
        self.chosen_width.fill_(value)

    def means(self, square_distance_BN: Tensor, values: SettingValues) -> list[Tensor]:
        """Means of the training targets by the kernel, (B, K), for each width.

        Args:
            square_distance_BN: squared distances of B rows to the N training rows.
            values: widths of the kernel.
        """
        means = []
        for width in values:
            weight_BN = kernel_weights(square_distance_BN / width**2, self.kernel)
            means.append(weight_BN @ self.value_NK)
        return means


def kernel_weights(square_u_BN: Tensor, kernel: Kernel) -> Tensor:
    """Weights of N training rows for B rows, ``K(u_i) / sum_j K(u_j)``, (B, N).

    Where no training row lies in the window of the kernel, the nearest one has weight
    1.

    Args:
        square_u_BN: squares of u, the distances divided by the width.
        kernel: K.
    """
    if kernel == "gaussian":
        return torch.softmax(-0.5 * square_u_BN, dim=1)
    if kernel == "boxcar":
        k_BN = (square_u_BN <= 1).to(square_u_BN.dtype)
    elif kernel == "triangular":
        k_BN = (1 - square_u_BN.sqrt()).clamp_min(0)
    else:
        k_BN = (1 - square_u_BN).clamp_min(0)
    total_B1 = k_BN.sum(1, keepdim=True)
    nearest_B1 = square_u_BN.argmin(1, keepdim=True)
    nearest_BN = torch.zeros_like(square_u_BN).scatter(1, nearest_B1, 1.0)
    is_empty_B1 = total_B1 == 0
    return torch.where(is_empty_B1, nearest_BN, k_BN / total_B1)
