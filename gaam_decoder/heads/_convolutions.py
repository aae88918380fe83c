"""Two 3 x 3 convolutions with ReLUs as matrix products, for CPUs.

B batch, H height, W width, L layers (channels outside), K channels between, N = B H W pixels of all
images, M pixels worked on at a time, I x J = 3 x 3 a window, T = 9 L numbers of it, F = 9 L + 1
with a one for the bias, rounded up to a multiple of 8.

The second convolution maps many channels to few: as a product K -> 9 L whose results are added up
where windows overlap it has the shape of the first. Images go through in blocks whose K channels
stay in the cache. Measured against ``nn.Conv2d``: tests/benchmarks/bench_train.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK_BYTES = 3 * 2**20
"""Of the channels between the convolutions that are worked on at a time."""


def windows(image_BHWL: Tensor, dtype: torch.dtype, width: int) -> Tensor:
    """The 3 x 3 window around every pixel, zeros outside, then a one and zeros: (N, width)."""
    b, h, w, channels = image_BHWL.shape
    padded = torch.zeros(b, h + 2, w + 2, channels, dtype=dtype)
    padded[:, 1:-1, 1:-1] = image_BHWL
    of_image, of_row, of_pixel, _ = padded.stride()
    # three neighbouring pixels of a row lie side by side: overlapping views, copied once
    view = padded.as_strided((b, h, w, 3, 3 * channels), (of_image, of_row, of_pixel, of_row, 1))
    out = torch.zeros(b * h * w, width, dtype=dtype)
    out[:, : 9 * channels].view(b, h, w, 3, 3 * channels).copy_(view)
    if width > 9 * channels:
        out[:, 9 * channels] = 1
    return out


def overlapping_sum(y_NT: Tensor, shape: tuple[int, ...], *, mirrored: bool) -> Tensor:
    """Add up windows where they overlap, in float32 at least: (N, T) -> (B, H, W, L).

    The transpose of ``windows``; ``mirrored`` puts every window upside down first.
    """
    b, h, w, channels = shape
    wide = y_NT.to(torch.promote_types(y_NT.dtype, torch.float32))
    y_BHWIJL = wide.view(b, h, w, 3, 3, channels)
    out = torch.zeros(b, h + 2, w + 2, channels, dtype=wide.dtype)
    for i in range(3):
        for j in range(3):
            row, column = (2 - i, 2 - j) if mirrored else (i, j)
            out[:, row : row + h, column : column + w].add_(y_BHWIJL[:, :, :, i, j])
    return out[:, 1:-1, 1:-1]


def rectify(h_NK: Tensor) -> Tensor:
    """ReLU of bfloat16 numbers none of which is NaN, in place.

    As whole numbers of the same bits, negative if and only if the number is: torch's own goes
    through float32 and takes six times as long. It would make zeros of NaNs that happen to have a
    sign.
    """
    h_NK.view(torch.int16).clamp_min_(0)
    return h_NK


def rectify_gradient(grad_NK: Tensor, h_NK: Tensor) -> Tensor:
    """The gradient where ``h_NK``, which went through a ReLU, is positive, else zero; in place."""
    if h_NK.dtype == torch.bfloat16:
        # the bits of what is positive are a positive whole number: times one, or times zero
        grad_NK.view(torch.int16).mul_(h_NK.view(torch.int16).clamp(0, 1))
        return grad_NK
    return torch.ops.aten.threshold_backward.grad_input(grad_NK, h_NK, 0, grad_input=grad_NK)


def _finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.sum().isfinite()) for tensor in tensors)


def _width(channels: int) -> int:
    return -(-(9 * channels + 1) // 8) * 8


def _block(pixels: int, rows: int, between: int, dtype: torch.dtype) -> int:
    images = max(1, BLOCK_BYTES // (pixels * between * dtype.itemsize))
    return min(rows, images * pixels)


def _first(weight_KLIJ: Tensor, bias_K: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights and bias of the first convolution as a matrix, (F, K)."""
    between, channels = weight_KLIJ.shape[:2]
    matrix = torch.zeros(_width(channels), between, dtype=dtype)
    matrix[: 9 * channels].view(3, 3, channels, between).copy_(weight_KLIJ.permute(2, 3, 1, 0))
    matrix[9 * channels] = bias_K
    return matrix


def _second(weight_LKIJ: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights of the second convolution as a matrix, (T, K)."""
    channels, between = weight_LKIJ.shape[:2]
    return weight_LKIJ.permute(2, 3, 0, 1).reshape(9 * channels, between).to(dtype)


def _forward(
    x_BHWL: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    channels, between = w2.shape[:2]
    window_NF = windows(x_BHWL, dtype, _width(channels))
    first_FK, second_TK = _first(w1, b1, dtype), _second(w2, dtype)
    rows = len(window_NF)
    h_NK = torch.empty(rows, between, dtype=dtype)
    y_NT = torch.empty(rows, 9 * channels, dtype=dtype)
    size = _block(x_BHWL.shape[1] * x_BHWL.shape[2], rows, between, dtype)
    by_bits = dtype == torch.bfloat16 and _finite(x_BHWL, w1, b1)
    relu = rectify if by_bits else Tensor.relu_
    for start in range(0, rows, size):
        part = slice(start, start + size)
        torch.mm(window_NF[part], first_FK, out=h_NK[part])
        relu(h_NK[part])
        torch.mm(h_NK[part], second_TK.t(), out=y_NT[part])
    out = overlapping_sum(y_NT, tuple(x_BHWL.shape), mirrored=True).add(b2).relu_()
    return out, window_NF, h_NK


def _backward(
    grad_BHWL: Tensor, out_BHWL: Tensor, window_NF: Tensor, h_NK: Tensor, w1: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dtype, (channels, between) = h_NK.dtype, w2.shape[:2]
    count, rows = 9 * channels, len(h_NK)
    grad_BHWL = grad_BHWL * (out_BHWL > 0)
    # windows of the gradient are mirrored to those that the second convolution spread it by
    grad_NT = windows(grad_BHWL, dtype, count)
    second_TK = _second(w2.flip(2, 3), dtype)
    first_KT = _first(w1, w1.new_zeros(between), dtype)[:count].t().contiguous()
    wide = torch.promote_types(dtype, torch.float32)
    grad_first_FK = torch.zeros(window_NF.shape[1], between, dtype=wide)
    grad_second_TK = torch.zeros(count, between, dtype=wide)
    grad_window_NT = torch.empty(rows, count, dtype=dtype)
    size = _block(grad_BHWL.shape[1] * grad_BHWL.shape[2], rows, between, dtype)
    buffer_MK = torch.empty(size, between, dtype=dtype)
    for start in range(0, rows, size):
        part = slice(start, start + size)
        grad_h_MK = torch.mm(grad_NT[part], second_TK, out=buffer_MK[: len(h_NK[part])])
        grad_second_TK += grad_NT[part].t() @ h_NK[part]
        rectify_gradient(grad_h_MK, h_NK[part])
        grad_first_FK += window_NF[part].t() @ grad_h_MK
        torch.mm(grad_h_MK, first_KT, out=grad_window_NT[part])
    grad_x = overlapping_sum(grad_window_NT, tuple(grad_BHWL.shape), mirrored=False)
    grad_w1 = grad_first_FK[:count].view(3, 3, channels, between).permute(3, 2, 0, 1)
    grad_w2 = grad_second_TK.view(3, 3, channels, between).permute(2, 3, 0, 1).flip(2, 3)
    return grad_x, grad_w1, grad_first_FK[count], grad_w2, grad_BHWL.sum((0, 1, 2))


def _each_seed(function: Any, size: int, in_dims: tuple[Any, ...], inputs: Any) -> tuple[Any, Any]:
    """A vmap rule: one seed after the other, each large enough to keep the cores busy."""
    rows = [
        function.apply(
            *(
                x.select(dim, seed) if dim is not None and isinstance(x, Tensor) else x
                for x, dim in zip(inputs, in_dims, strict=True)
            )
        )
        for seed in range(size)
    ]
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])


class _Backward(torch.autograd.Function):
    """The gradient, as a function of its own so that it has a vmap rule too."""

    @staticmethod
    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        return _backward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError("second derivatives of the convolutions")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _each_seed(_Backward, info.batch_size, in_dims, inputs)


class Convolutions(torch.autograd.Function):
    """``relu(conv2(relu(conv1(x))))`` on channels-last images.

    Args:
        x_BHWL: images.
        w1, b1: (K, L, 3, 3) and (K,).
        w2, b2: (L, K, 3, 3) and (L,).
        dtype: of the matrix products; what they are added up in is float32 at least.

    Returns:
        The images (B, H, W, L), and two tensors that the gradient needs.
    """

    @staticmethod
    def forward(
        x_BHWL: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _forward(x_BHWL, w1, b1, w2, b2, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, w1, _, w2, _, _ = inputs
        out, window_NF, h_NK = output
        ctx.mark_non_differentiable(window_NF, h_NK)
        ctx.set_materialize_grads(False)  # else zeros as large as h_NK for what has no gradient
        ctx.save_for_backward(out, window_NF, h_NK, w1, w2)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (*_Backward.apply(grad_out, *ctx.saved_tensors), None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        return _each_seed(Convolutions, info.batch_size, in_dims, inputs)
