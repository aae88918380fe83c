"""The published convolutional head.

B batch, L layers as channels, D = H W hidden size, H height, W width, N = H W pixels of an image, C
classes, K channels between, F = 9 L numbers of a window.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from gaam_decoder.heads._base import Head
from gaam_decoder.heads._convolutions import Convolutions

CHANNELS = 512

ALIASES = ("cnn", "convolution")


def grid(hidden_size: int) -> tuple[int, int]:
    """The most nearly square (height, width) with height <= width and height x width = D.

    5120 -> (64, 80), 1024 -> (32, 32), 384 -> (16, 24). 512 -> (64, 8), as the published code has
    it for its 512-dimensional mechanisms.
    """
    if hidden_size == 512:
        return 64, 8
    height = next(n for n in range(math.isqrt(hidden_size), 0, -1) if hidden_size % n == 0)
    return height, hidden_size // height


class ConvHead(Head):
    """Two convolutions over features laid out as an image with one channel per layer.

    ``Conv2d(L, 512) -> ReLU -> Conv2d(512, L) -> ReLU -> flatten -> Linear``; kernels 3 x 3, stride
    1, padding 1. Weights Xavier-uniform, biases PyTorch's default.

    Numerics:
        The convolutions are computed as matrix products, several times as fast as ``nn.Conv2d`` and
        equal to it up to rounding. Under autocast the products are bfloat16, what they are added up
        in float32.

    Source: published code of arXiv 2401.11143.
    """

    compiles = False

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        self.grid = grid(hidden_size)
        self.conv1 = nn.Conv2d(num_layers, CHANNELS, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS, num_layers, kernel_size=3, padding=1)
        self.fc = nn.Linear(num_layers * hidden_size, num_classes)
        for module in (self.conv1, self.conv2, self.fc):
            nn.init.xavier_uniform_(module.weight)

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """(B, L, D) -> (B, C); takes no noise."""
        image_BLHW = x_BLD.unflatten(-1, self.grid)
        convolve = self._on_cpu if x_BLD.device.type == "cpu" else self._elsewhere
        return self.fc(convolve(image_BLHW).flatten(1))

    def plain(self, x_BLD: Tensor) -> Tensor:
        """The same with the modules as they stand: what the fast forms are compared with."""
        hidden_BKHW = self.conv1(x_BLD.unflatten(-1, self.grid)).relu()
        return self.fc(self.conv2(hidden_BKHW).relu().flatten(1))

    def _on_cpu(self, image_BLHW: Tensor) -> Tensor:
        dtype = image_BLHW.dtype
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
        parameters = (self.conv1.weight, self.conv1.bias, self.conv2.weight, self.conv2.bias)
        out_BHWL, _, _ = Convolutions.apply(image_BLHW.permute(0, 2, 3, 1), *parameters, dtype)
        return out_BHWL.permute(0, 3, 1, 2)

    def _elsewhere(self, image_BLHW: Tensor) -> Tensor:
        """Ordinary matrix products, which vmap turns into batched ones.

        (It would turn convolutions into grouped ones, which are slow.)
        """
        column_BFN = functional.unfold(image_BLHW, 3, padding=1)
        first_KF, bias_K = self.conv1.weight.flatten(1), self.conv1.bias
        hidden_BNK = functional.linear(column_BFN.transpose(1, 2), first_KF, bias_K).relu()
        # the second maps many channels to few: a product to all windows, added up where they meet
        second_FK = self.conv2.weight.flip(2, 3).permute(0, 2, 3, 1).flatten(0, 2)
        window_BFN = functional.linear(hidden_BNK, second_FK).transpose(1, 2)
        wide = torch.promote_types(window_BFN.dtype, torch.float32)
        out_BLHW = functional.fold(window_BFN.to(wide), self.grid, 3, padding=1)
        bias_L = self.conv2.get_parameter("bias")
        return (out_BLHW + bias_L[:, None, None]).relu()
