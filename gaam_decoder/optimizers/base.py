"""What an optimiser is.

S seeds, K numbers that depend on the step alone.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from gaam_decoder.training.arithmetic.state import Stacked, State, of_seeds


class Optimizer(ABC):
    """Changes parameters of S seeds by their gradients, every seed at a rate of its own.

    Nothing may flow from one seed to another: the first axis of every tensor is the seed. Options
    are the keyword-only arguments of the constructor.
    """

    moments: ClassVar[tuple[str, ...]]
    """What is remembered of every parameter; zero before the first step."""
    rates: ClassVar[tuple[float, ...]]
    """Tried where nobody names a rate and rows of train may choose; where none may, the first."""

    def numbers(self, step: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """K numbers that depend on the step, from 1, alone: a number, or a tensor of them."""
        return ()

    @abstractmethod
    def change(
        self,
        parameter: Tensor,
        gradient: Tensor,
        moments: dict[str, Tensor],
        lr: Tensor,
        numbers: Tensor,
        weight_decay: float,
    ) -> None:
        """One step of one parameter, (S, ...), in place, as are its moments.

        ``numbers`` are (K,), or (K, S) where each seed is at a step of its own.
        """


def take_step(
    optimizer: Optimizer,
    state: State,
    gradients: Stacked,
    lr_S: Tensor,
    numbers: Tensor,
    weight_decay: float,
    taken_S: Tensor | None = None,
) -> None:
    """One step of all parameters; ``state`` changes in place.

    Seeds that are not among ``taken_S`` stay as they are; None: all take the step.
    """
    for name, gradient in gradients.items():
        parameter = state.parameters[name]
        moments = {moment: of[name] for moment, of in state.moments.items()}
        changing = (parameter, *moments.values())
        before = [] if taken_S is None else [value.clone() for value in changing]
        lr = of_seeds(lr_S, gradient)
        optimizer.change(parameter, gradient, moments, lr, numbers, weight_decay)
        if taken_S is not None:
            taken = of_seeds(taken_S, gradient)
            for value, old in zip(changing, before, strict=True):
                value.copy_(torch.where(taken, value, old))
