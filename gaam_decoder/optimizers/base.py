"""The base class of optimizers, which own the state that they keep of every seed.

S seeds, K constants of a step: numbers that depend on its number alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from gaam_cache.common.own_code import RemembersCode

Stacked = dict[str, Tensor]  # parameters, buffers or gradients by name, each (S, ...)
States = dict[str, Stacked]  # name of a parameter -> state that is kept for it
RESERVED_NAMES = {"parameters", "buffers", "kept", "scaling"}
"""Names of other tensors in a checkpoint, which no tensor of a state may have."""


class Optimizer(RemembersCode, ABC):
    """Updates the parameters of S seeds, each seed at a learning rate of its own.

    The first axis of every tensor is the seed, and nothing may flow from one seed to
    another: a matrix of a decoder is (S, rows, columns) here. An optimizer is a file
    with two methods, ``initial_state`` and ``update``. It needs ``numbers`` only if
    something depends on the number of the step. Its options are the keyword-only
    arguments of the constructor. Its state lives in the dictionaries that
    ``initial_state`` returns, never in the object: training stacks, saves and restores
    it.

    A state may differ between parameters, and its tensors need not look like the
    parameter. This one keeps a momentum of matrices, and steps along its sign; of other
    parameters it keeps the mean size of the gradient, one number for each seed:

        class SignedMomentum(Optimizer):
            rates = (1e-3, 1e-2)

            def initial_state(self, name, parameter):
                if parameter.ndim == 3:
                    return {"momentum": torch.zeros_like(parameter)}
                return {"size": parameter.new_zeros(len(parameter))}

            def update(
                self, parameter, gradient, state, lr, step_constants, weight_decay
            ):
                if "momentum" in state:
                    step = state["momentum"].lerp_(gradient, 0.1).sign()
                else:
                    size_S = gradient.flatten(1).abs().mean(1)
                    state["size"].lerp_(size_S, 0.1)
                    step = gradient / per_seed(state["size"] + 1e-8, gradient)
                parameter.mul_(1 - lr * weight_decay)
                parameter.sub_(lr * step)
    """

    rates: ClassVar[tuple[float, ...]]
    """Learning rates to tune over by default; the first where nothing is tuned."""

    @abstractmethod
    def initial_state(self, name: str, parameter: Tensor) -> Stacked:
        """The state of one parameter before the first step.

        Args:
            name: the name of the parameter in the decoder, such as ``head.fc.weight``.
            parameter: (S, ...). Not every (S, rows, columns) is a matrix of weights:
                the offsets of a gate are (S, heads, features), for example.

        Returns:
            Tensors by name, on the device of the parameter, with S as their first axis.
        """

    def numbers(self, step: object) -> tuple[Any, ...]:  # noqa: ARG002
        """K constants of a step for ``update``, such as Adam's corrections of a bias.

        Args:
            step: the number of the step, from 1; or one for each seed, (S,), in
                float64.
        """
        return ()

    @abstractmethod
    def update(
        self,
        parameter: Tensor,
        gradient: Tensor,
        state: Stacked,
        lr: Tensor,
        step_constants: Tensor,
        weight_decay: float,
    ) -> None:
        """Change one parameter and its state in place.

        Args:
            parameter: (S, ...).
            gradient: (S, ...), of the unscaled loss, clipped if the recipe clips.
            state: of this parameter.
            lr: (S, 1, ...), to broadcast with the parameter.
            step_constants: what ``numbers`` gives for this step: (K,), or (K, S) if
                each seed is at a step of its own; ``per_seed`` gives either a shape
                that broadcasts.
            weight_decay: of the recipe.
        """

    def initial_states(self, parameters: Stacked) -> States:
        """The states of all parameters before the first step.

        Raises:
            ValueError: a tensor of a state has a name of a checkpoint, or lacks the
                axis of seeds.
        """
        states: States = {}
        for name, parameter in parameters.items():
            state = self.initial_state(name, parameter)
            for key, value in state.items():
                # a checkpoint names tensors by their key, a dot and their parameter
                if key in RESERVED_NAMES or "." in key:
                    raise ValueError(f"no state of an optimizer is called '{key}'")
                has_seed_axis = value.ndim > 0 and len(value) == len(parameter)
                if not has_seed_axis:
                    raise ValueError(f"'{key}' is not (seeds, ...), as a state must be")
            states[name] = state
        return states

    def step(
        self,
        parameters: Stacked,
        gradients: Stacked,
        states: States,
        lr_S: Tensor,
        step_constants: Tensor,
        weight_decay: float,
        updated_S: Tensor | None = None,
    ) -> None:
        """Take one step: change all parameters and their states in place.

        Args:
            parameters: by name, each (S, ...).
            gradients: by the same names.
            states: by the same names.
            lr_S: learning rates.
            step_constants: what ``numbers`` gives for this step, as in ``update``.
            weight_decay: of the recipe.
            updated_S: whether each seed takes the step; the tensors of the others stay
                as they are. None: all take it.
        """
        for name, gradient in gradients.items():
            parameter = parameters[name]
            state = states[name]
            tensors = (parameter, *state.values())
            old_tensors: list[Tensor] = []
            if updated_S is not None:
                old_tensors = [tensor.clone() for tensor in tensors]
            lr = per_seed(lr_S, gradient)
            self.update(parameter, gradient, state, lr, step_constants, weight_decay)
            # the other seeds get their old values back
            if updated_S is not None:
                for tensor, old_tensor in zip(tensors, old_tensors, strict=True):
                    is_updated = per_seed(updated_S, tensor)
                    tensor.copy_(torch.where(is_updated, tensor, old_tensor))


def state_tensors(states: Mapping[str, Stacked]) -> Stacked:
    """All tensors of all states by one name each, such as ``velocity.head.weight``."""
    return {
        f"{key}.{name}": value
        for name, state in states.items()
        for key, value in state.items()
    }


def per_seed(value_S: Tensor, like: Tensor) -> Tensor:
    """Give one number per seed, (S,), the shape (S, 1, ...) to broadcast with ``like``.

    A scalar stays a scalar.
    """
    if value_S.ndim == 0:
        return value_S
    other_axes = [1] * (like.ndim - 1)
    return value_S.view(-1, *other_axes)
