"""Nadaraya-Watson kernel regression over the layers.

B batch, L layers, D hidden size, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gaam_decoder.attention._density import positive
from gaam_decoder.attention._groups import DEFAULT_HEADS
from gaam_decoder.attention._kernels import Kernel, kernel_weights
from gaam_decoder.attention._pooling import LayerPooling


class NadarayaWatson(LayerPooling):
    """Learned queries that read the layers by a kernel of their distance.

    Formula: ``y_h = sum_l K(|q_h - k_l| / h_h) x_l / sum_l K(|q_h - k_l| / h_h)``, k the layers
    normalised over features, ``|.|`` the root mean square over features.

    The queries (heads, hidden_size) start normal with standard deviation 0.1, the bandwidths h
    (heads,) at 2, where every layer lies in the window; h is clamped to at least 1e-3 where it is
    used. What an empty window and the boxcar's gradient are, ``kernel_weights`` says.

    Args:
        heads: learned queries.
        kernel: gaussian, boxcar or epanechnikov.

    Source: Nadaraya 1964, Watson 1964; Zhang et al., Dive into Deep Learning, section 11.2.
    Normalised keys and distances are this project's choice.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int = DEFAULT_HEADS,
        kernel: Kernel = "gaussian",
    ) -> None:
        super().__init__(num_layers, hidden_size, heads=heads)
        self.kernel: Kernel = kernel
        self.smooth = kernel != "boxcar"
        self.h = nn.Parameter(torch.full((heads,), 2.0))

    def weights(self, key_BLD: Tensor) -> Tensor:
        """Kernel weights, (B, H, L)."""
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2, without a tensor of shape (B, H, L, D)
        cross_BHL = (key_BLD @ self.query.T).transpose(1, 2)
        squares_BHL = key_BLD.square().sum(-1)[:, None] + self.query.square().sum(-1)[:, None]
        mean_BHL = (squares_BHL - 2 * cross_BHL) / self.hidden_size
        distance_BHL = mean_BHL.clamp_min(1e-12).sqrt()
        return kernel_weights(distance_BHL / positive(self.h)[:, None], self.kernel)

    def learned(self) -> dict[str, Tensor]:
        """Bandwidths ``h``, (H,)."""
        return {"h": positive(self.h)}
