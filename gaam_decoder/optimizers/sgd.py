"""Stochastic gradient descent with momentum."""

from torch import Tensor

from gaam_cache.common.errors import check_option
from gaam_decoder.optimizers.base import Optimizer


class SGD(Optimizer):
    """A step along the gradients so far, operation by operation that of torch.

    Formula: ``g = g + decay p``, ``v = momentum v + g``, ``p = p - lr v``; with Nesterov's momentum
    ``p = p - lr (g + momentum v)``.

    Args:
        momentum: 0 to below 1; 0 is plain gradient descent.
        nesterov: whether the step looks ahead.

    Source: Sutskever, Martens, Dahl, Hinton 2013; torch.optim.SGD.
    """

    moments = ("velocity",)
    rates = (3e-3, 2e-2, 1e-1, 5e-1)

    def __init__(self, *, momentum: float = 0.9, nesterov: bool = False) -> None:
        check_option(0 <= momentum < 1, "momentum", momentum, "0 to below 1")
        check_option(
            momentum > 0 or not nesterov, "momentum", momentum, "above 0, with nesterov"
        )
        self.momentum, self.nesterov = momentum, nesterov

    def change(
        self,
        parameter: Tensor,
        gradient: Tensor,
        moments: dict[str, Tensor],
        lr: Tensor,
        numbers: Tensor,  # noqa: ARG002
        weight_decay: float,
    ) -> None:
        """One step of one parameter."""
        gradient = gradient + weight_decay * parameter
        velocity = moments["velocity"].mul_(self.momentum).add_(gradient)
        ahead = gradient + self.momentum * velocity if self.nesterov else velocity
        parameter.sub_(lr * ahead)
