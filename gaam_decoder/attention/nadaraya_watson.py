"""Nadaraya-Watson kernel regression over the layers.

B batch, L layers, D hidden size, H heads.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaam_decoder.attention.frames.density import positive
from gaam_decoder.attention.frames.pooling import LayerPooling

Kernel = Literal["gaussian", "boxcar", "epanechnikov"]
FIRST_BANDWIDTH = 2.0
"""Bandwidth before training, with which every layer lies in the window."""
EDGE = 0.1
"""Width of the logistic edge, in bandwidths, whose gradient the boxcar has."""


class NadarayaWatson(LayerPooling):
    """Learned queries read the layers by a kernel of their distance.

    Formula: ``y_i = sum_l K(|q_i - k_l| / h_i) x_l / sum_l K(|q_i - k_l| / h_i)`` for
    head i, k the layers normalised over features, ``|.|`` the root mean square over
    features.

    The queries q (heads, hidden_size) start normal with standard deviation 0.1. The
    bandwidths ``h`` (heads,) start at 2, where every layer lies in the window, and are
    clamped to at least 1e-3 where they are used.

    Args:
        heads: learned queries.
        kernel: K: gaussian ``exp(-u^2 / 2)``; boxcar 1 for u <= 1; epanechnikov
            ``1 - u^2`` for u < 1.

    Numerics:
        Where no layer lies in the window of a boxcar or an Epanechnikov kernel, the
        nearest layer gets all the weight. The boxcar has the gradient of a window with
        a logistic edge, ``sigmoid((1 - u) / 0.1)``.

    Source: Nadaraya 1964, Watson 1964; Zhang et al., Dive into Deep Learning, section
    11.2. Normalised keys and distances are this project's choice.
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
        # the bandwidth of every head
        self.h = nn.Parameter(torch.full((self.heads,), FIRST_BANDWIDTH))

    def weights(self, key_BLD: Tensor) -> Tensor:
        """``K(|q_i - k_l| / h_i)``, normalised over the layers, (B, H, L).

        h_i is the bandwidth of head i, and ``|.|`` the root mean square over features.
        """
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2, without a tensor of shape (B, H, L, D)
        cross_BHL = (key_BLD @ self.query.T).transpose(1, 2)
        key_square_B1L = key_BLD.square().sum(-1)[:, None]
        query_square_H1 = self.query.square().sum(-1)[:, None]
        square_BHL = key_square_B1L + query_square_H1 - 2 * cross_BHL
        mean_square_BHL = square_BHL / self.hidden_size
        distance_BHL = mean_square_BHL.clamp_min(1e-12).sqrt()
        bandwidth_H1 = positive(self.h)[:, None]
        return kernel_weights(distance_BHL / bandwidth_H1, self.kernel)

    def learned(self) -> dict[str, Tensor]:
        """Bandwidths ``h``, (H,)."""
        return {"h": positive(self.h)}


def kernel_weights(u: Tensor, kernel: Kernel) -> Tensor:
    """Nadaraya-Watson weights ``K(u_i) / sum_j K(u_j)``.

    Args:
        u: distances divided by the bandwidth, >= 0, (..., points).
        kernel: 'gaussian' exp(-u^2 / 2); 'boxcar' 1 for u <= 1; 'epanechnikov' 1 - u^2
            for u < 1.

    Returns:
        Weights that sum to 1, of the same shape.

    Numerics:
        The window of a compact kernel may be empty. Then the nearest point gets all the
        weight, which is the limit of a Gaussian, with a Gaussian's gradient.
        The derivative of the boxcar is 0 almost everywhere. Its value is exact; its
        gradient is that of the same window with a logistic edge,
        ``sigmoid((1 - u) / 0.1)``.
    """
    gaussian = torch.softmax(-0.5 * u.square(), dim=-1)
    if kernel == "gaussian":
        return gaussian
    # K(u), and whether it is above 0
    if kernel == "boxcar":
        is_inside = u <= 1
        soft_edge = torch.sigmoid((1 - u) / EDGE)
        # soft_edge - soft_edge.detach() is 0, but has the gradient of the soft edge
        k = is_inside.to(u.dtype) + (soft_edge - soft_edge.detach())
    else:
        is_inside = u < 1
        k = torch.where(is_inside, 1 - u.square(), 0.0)

    # an empty window: all weight on the nearest point
    nearest = torch.zeros_like(u).scatter(-1, u.argmin(-1, keepdim=True), 1.0)
    # the value of the nearest point's weights, with the gradient of a Gaussian
    nearest = nearest + (gaussian - gaussian.detach())
    is_empty = ~is_inside.any(-1, keepdim=True)
    # both branches of the last where have a gradient, so neither may divide by 0
    total = torch.where(is_empty, 1.0, k.sum(-1, keepdim=True))
    return torch.where(is_empty, nearest, k / total)
