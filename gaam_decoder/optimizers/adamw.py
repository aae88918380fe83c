"""Adam with decoupled weight decay."""

from typing import Any

import torch
from torch import Tensor

from gaam_decoder.optimizers.base import Optimizer, Stacked, per_seed

ALIASES = ("adam",)
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW(Optimizer):
    """A step of the mean gradient over its spread, operation by operation as in torch.

    Formula: ``m = 0.9 m + 0.1 g``, ``v = 0.999 v + 0.001 g^2``,
    ``p = (1 - lr decay) p - lr m^ / (sqrt(v^) + 1e-8)``. The circumflex marks moments
    without the bias of their start at zero.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101; torch.optim.AdamW.
    """

    rates = (3e-4, 2e-3, 1e-2, 5e-2)

    def initial_state(self, name: str, parameter: Tensor) -> Stacked:
        """Both moments, zero."""
        return {
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    def numbers(self, step: Any) -> tuple[Any, ...]:
        """``1 - beta1^t`` and ``sqrt(1 - beta2^t)``, which correct the bias, and t."""
        return 1 - BETAS[0] ** step, (1 - BETAS[1] ** step) ** 0.5, step

    def update(
        self,
        parameter: Tensor,
        gradient: Tensor,
        state: Stacked,
        lr: Tensor,
        numbers: Tensor,
        weight_decay: float,
    ) -> None:
        """One step of one parameter."""
        exp_avg = state["exp_avg"]
        exp_avg_sq = state["exp_avg_sq"]
        if _fits_one_kernel(parameter):
            one_kernel: Any = torch._fused_adamw_
            one_kernel(
                [parameter],
                [gradient.contiguous()],
                [exp_avg],
                [exp_avg_sq],
                [],
                [numbers[2].squeeze()],
                beta1=BETAS[0],
                beta2=BETAS[1],
                eps=EPSILON,
                lr=lr.squeeze(),
                weight_decay=weight_decay,
                amsgrad=False,
                maximize=False,
            )
            return
        exp_avg.lerp_(gradient, 1 - BETAS[0])
        exp_avg_sq.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        # in place: new memory for every operation would take longer than the operation
        # numbers: the corrections of the two moments, and the step
        root = exp_avg_sq.sqrt().div_(per_seed(numbers[1], gradient))
        denominator = root.add_(EPSILON)
        step = torch.div(exp_avg, denominator, out=denominator)
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(step.mul_(lr / per_seed(numbers[0], gradient)))


def _fits_one_kernel(parameter: Tensor) -> bool:
    """Whether one kernel of torch can make the whole step, in a third of the time.

    That kernel takes one learning rate, and so one seed, and needs contiguous memory.
    """
    has_one_seed = len(parameter) == 1
    is_plain = parameter.is_contiguous() and parameter.device.type == "cpu"
    return is_plain and has_one_seed and not torch.compiler.is_compiling()
