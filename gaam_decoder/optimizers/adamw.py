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
        correction = 1 - BETAS[0] ** step
        root_correction = (1 - BETAS[1] ** step) ** 0.5
        return correction, root_correction, step

    def update(
        self,
        parameter: Tensor,
        gradient: Tensor,
        state: Stacked,
        lr: Tensor,
        step_constants: Tensor,
        weight_decay: float,
    ) -> None:
        """One step of one parameter, whose constants are those that ``numbers`` gives.

        Each constant is a scalar, or (S,) if every seed is at a step of its own; ``lr``
        has the axes of the parameter already.
        """
        correction, root_correction, step_number = step_constants
        if _fits_one_kernel(parameter):
            _update_in_one_kernel(
                parameter, gradient, state, lr, step_number, weight_decay
            )
            return
        correction = per_seed(correction, gradient)
        root_correction = per_seed(root_correction, gradient)

        # in place: new memory for every operation would take longer than the operation
        exp_avg = state["exp_avg"]
        exp_avg_sq = state["exp_avg_sq"]
        exp_avg.lerp_(gradient, 1 - BETAS[0])
        exp_avg_sq.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        root = exp_avg_sq.sqrt().div_(root_correction)
        denominator = root.add_(EPSILON)
        step = torch.div(exp_avg, denominator, out=denominator)
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(step.mul_(lr / correction))


def _update_in_one_kernel(
    parameter: Tensor,
    gradient: Tensor,
    state: Stacked,
    lr: Tensor,
    step_number: Tensor,
    weight_decay: float,
) -> None:
    """One step of one parameter of one seed; learning rate and step have one number."""
    one_kernel: Any = torch._fused_adamw_
    one_kernel(
        [parameter],
        [gradient.contiguous()],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [step_number.squeeze()],
        beta1=BETAS[0],
        beta2=BETAS[1],
        eps=EPSILON,
        lr=lr.squeeze(),
        weight_decay=weight_decay,
        amsgrad=False,
        maximize=False,
    )


def _fits_one_kernel(parameter: Tensor) -> bool:
    """Whether one kernel of torch can make the whole step; that is three times as fast.

    That kernel takes one learning rate, and so one seed, and contiguous memory of the
    CPU. Compiled steps do without it: the compiler joins the operations itself.

    Args:
        parameter: the first axis has the seeds.
    """
    has_one_seed = len(parameter) == 1
    is_contiguous_on_cpu = parameter.is_contiguous() and parameter.device.type == "cpu"
    return is_contiguous_on_cpu and has_one_seed and not torch.compiler.is_compiling()
