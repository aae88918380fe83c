"""Adam with decoupled weight decay."""

from typing import Any

import torch
from torch import Tensor

from gaam_decoder.optimizers.base import Optimizer
from gaam_decoder.training.arithmetic.state import of_seeds

ALIASES = ("adam",)
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW(Optimizer):
    """A step of the mean gradient over its spread, as torch takes it.

    Formula: ``m = 0.9 m + 0.1 g``, ``v = 0.999 v + 0.001 g^2``,
    ``p = (1 - lr decay) p - lr m^ / (sqrt(v^) + 1e-8)``, with ^ without the bias of the start.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101; torch.optim.AdamW.
    """

    moments = ("exp_avg", "exp_avg_sq")
    rates = (3e-4, 2e-3, 1e-2, 5e-2)

    def numbers(self, step: Any) -> tuple[Any, ...]:
        """``1 - beta1^t``, ``sqrt(1 - beta2^t)`` and t."""
        return 1 - BETAS[0] ** step, (1 - BETAS[1] ** step) ** 0.5, step

    def change(
        self,
        parameter: Tensor,
        gradient: Tensor,
        moments: dict[str, Tensor],
        lr: Tensor,
        numbers: Tensor,
        weight_decay: float,
    ) -> None:
        """One step of one parameter."""
        exp_avg, exp_avg_sq = moments["exp_avg"], moments["exp_avg_sq"]
        plain = parameter.is_contiguous() and parameter.device.type == "cpu"
        if plain and len(parameter) == 1 and not torch.compiler.is_compiling():
            # a third of the time; it reads memory as it lies
            one_kernel: Any = torch._fused_adamw_
            own = (
                [one] for one in (parameter, gradient.contiguous(), exp_avg, exp_avg_sq)
            )
            how = {
                "beta1": BETAS[0],
                "beta2": BETAS[1],
                "eps": EPSILON,
                "lr": lr.squeeze(),
            }
            at = {"weight_decay": weight_decay, "amsgrad": False, "maximize": False}
            one_kernel(*own, [], [numbers[2].squeeze()], **how, **at)
            return
        exp_avg.lerp_(gradient, 1 - BETAS[0])
        exp_avg_sq.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        # in place: new memory for every operation would take longer than the operation
        denominator = (
            exp_avg_sq.sqrt().div_(of_seeds(numbers[1], gradient)).add_(EPSILON)
        )
        step = torch.div(exp_avg, denominator, out=denominator)
        parameter.mul_(1 - lr * weight_decay)
        parameter.sub_(step.mul_(lr / of_seeds(numbers[0], gradient)))
