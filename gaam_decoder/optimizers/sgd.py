"""Stochastic gradient descent with momentum."""

import torch
from torch import Tensor

from gaam_cache.common.errors import check_option
from gaam_decoder.optimizers.base import Optimizer, Stacked


class SGD(Optimizer):
    """A step along the sum of the gradients so far, operation by operation as in torch.

    Formula: ``g = g + decay p``, ``v = momentum v + g``, ``p = p - lr v``; with
    Nesterov's momentum ``p = p - lr (g + momentum v)``.

    Args:
        momentum: 0 to below 1; 0 is plain gradient descent.
        nesterov: whether the step looks ahead.

    Source: Sutskever, Martens, Dahl, Hinton 2013; torch.optim.SGD.
    """

    rates = (3e-3, 2e-2, 1e-1, 5e-1)

    def __init__(self, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        check_option(0 <= momentum < 1, "momentum", momentum, "0 to below 1")
        check_option(
            momentum > 0 or not nesterov, "momentum", momentum, "above 0, with nesterov"
        )
        self.momentum = momentum
        self.nesterov = nesterov

    def initial_state(self, name: str, parameter: Tensor) -> Stacked:
        """The velocity, zero."""
        return {"velocity": torch.zeros_like(parameter)}

    def update(
        self,
        parameter: Tensor,
        gradient: Tensor,
        state: Stacked,
        lr: Tensor,
        step_constants: Tensor,  # noqa: ARG002
        weight_decay: float,
    ) -> None:
        """One step of one parameter."""
        gradient = gradient + weight_decay * parameter
        velocity = state["velocity"].mul_(self.momentum).add_(gradient)
        direction = velocity
        if self.nesterov:
            direction = gradient + self.momentum * velocity
        parameter.sub_(lr * direction)
