"""AdamW for stacked parameters: every seed with a rate and a gradient norm of its own.

S seeds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaam_cache.devices import float64
from gaam_decoder.training.arithmetic.state import Stacked, State, of_seeds

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def bias_corrections(first: int, count: int, like: Tensor) -> Tensor:
    """``1 - beta1^t`` and ``sqrt(1 - beta2^t)`` for t = first, ...: (count, 2)."""
    steps = range(first, first + count)
    table = [(1 - BETAS[0] ** t, (1 - BETAS[1] ** t) ** 0.5) for t in steps]
    return like.new_tensor(table)


def bias_corrections_at(step_S: Tensor, like: Tensor) -> Tensor:
    """The same two numbers for seeds that each are at a step of their own: (2, S)."""
    t_S = float64(step_S)  # as Python has it: float32 would lose 1e-5 of the first of them
    rows = [1 - BETAS[0] ** t_S, (1 - BETAS[1] ** t_S).sqrt()]
    return torch.stack(rows).to(like)


def clipped(gradients: Stacked, most: float) -> Stacked:
    """Every seed's gradient at a norm of at most ``most``, as torch's clip_grad_norm_ does it."""
    norms_PS = [g.flatten(1).norm(dim=1) for g in gradients.values()]
    norm_S = torch.stack(norms_PS).norm(dim=0)
    factor_S = (most / (norm_S + 1e-6)).clamp(max=1.0)
    return {name: g * of_seeds(factor_S, g) for name, g in gradients.items()}


def adamw(
    state: State,
    gradients: Stacked,
    lr_S: Tensor,
    bias_correction: Tensor,
    weight_decay: float,
    taken_S: Tensor | None = None,
) -> None:
    """One step of torch.optim.AdamW, operation by operation; ``state`` changes in place.

    ``bias_correction`` is (2,), a row of ``bias_corrections``, or (2, S). Seeds that are not among
    ``taken_S`` stay as they are; None: all take the step.
    """
    first, second = bias_correction[0], bias_correction[1]
    for name, gradient in gradients.items():
        parameter, exp_avg = state.parameters[name], state.exp_avg[name]
        exp_avg_sq = state.exp_avg_sq[name]
        changing = (parameter, exp_avg, exp_avg_sq)
        before = [] if taken_S is None else [value.clone() for value in changing]
        lr = of_seeds(lr_S, gradient)
        exp_avg.lerp_(gradient, 1 - BETAS[0])
        exp_avg_sq.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        denominator = exp_avg_sq.sqrt() / of_seeds(second, gradient) + EPSILON
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(lr / of_seeds(first, gradient) * (exp_avg / denominator))
        if taken_S is not None:
            taken = of_seeds(taken_S, gradient)
            for value, old in zip(changing, before, strict=True):
                value.copy_(torch.where(taken, value, old))
