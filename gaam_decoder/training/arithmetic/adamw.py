"""AdamW for stacked parameters: every seed with a rate and a gradient norm of its own.

S seeds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaam_decoder.training.arithmetic.state import Stacked, State

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def bias_corrections(first: int, count: int, like: Tensor) -> Tensor:
    """``1 - beta1^t`` and ``sqrt(1 - beta2^t)`` for t = first, ...: (count, 2)."""
    steps = range(first, first + count)
    table = [(1 - BETAS[0] ** t, (1 - BETAS[1] ** t) ** 0.5) for t in steps]
    return torch.tensor(table, dtype=like.dtype, device=like.device)


def clipped(gradients: Stacked, most: float) -> Stacked:
    """Every seed's gradient at a norm of at most ``most``, as torch's clip_grad_norm_ does it."""
    norms_PS = [g.flatten(1).norm(dim=1) for g in gradients.values()]
    norm_S = torch.stack(norms_PS).norm(dim=0)
    factor_S = (most / (norm_S + 1e-6)).clamp(max=1.0)
    return {name: g * factor_S.view(-1, *(1,) * (g.ndim - 1)) for name, g in gradients.items()}


def adamw(
    state: State, gradients: Stacked, lr_S: Tensor, bias_correction: Tensor, weight_decay: float
) -> None:
    """One step of torch.optim.AdamW, operation by operation; ``state`` changes in place.

    Args:
        state: parameters and moments.
        gradients: of this step.
        lr_S: learning rates.
        bias_correction: (2,), a row of ``bias_corrections``.
        weight_decay: of all.
    """
    for name, gradient in gradients.items():
        parameter, exp_avg = state.parameters[name], state.exp_avg[name]
        exp_avg_sq = state.exp_avg_sq[name]
        lr = lr_S.view(-1, *(1,) * (gradient.ndim - 1))
        exp_avg.lerp_(gradient, 1 - BETAS[0])
        exp_avg_sq.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        denominator = exp_avg_sq.sqrt() / bias_correction[1] + EPSILON
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(lr / bias_correction[0] * (exp_avg / denominator))
