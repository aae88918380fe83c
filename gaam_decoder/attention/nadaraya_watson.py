"""Nadaraya-Watson kernel regression over the layers.

B batch, L layers, D hidden size, H heads.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaam_decoder.attention.frames.density import positive
from gaam_decoder.attention.frames.pooling import LayerPooling

Kernel = Literal["gaussian", "boxcar", "epanechnikov"]
EDGE = 0.1
"""Width of the logistic edge, in bandwidths, that stands in for the boxcar's jump in gradients."""


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
        kernel: Kernel = "gaussian",
        **more: Any,
    ) -> None:
        super().__init__(num_layers, hidden_size, **more)
        self.kernel: Kernel = kernel
        self.smooth = kernel != "boxcar"
        self.h = nn.Parameter(torch.full((self.heads,), 2.0))

    def weights(self, key_BLD: Tensor) -> Tensor:
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2, without a tensor of shape (B, H, L, D)
        cross_BHL = (key_BLD @ self.query.T).transpose(1, 2)
        squares_BHL = (
            key_BLD.square().sum(-1)[:, None] + self.query.square().sum(-1)[:, None]
        )
        mean_BHL = (squares_BHL - 2 * cross_BHL) / self.hidden_size
        distance_BHL = mean_BHL.clamp_min(1e-12).sqrt()
        return kernel_weights(distance_BHL / positive(self.h)[:, None], self.kernel)

    def learned(self) -> dict[str, Tensor]:
        """Bandwidths ``h``, (H,)."""
        return {"h": positive(self.h)}


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
