"""The tensors that a training step reads and changes.

S seeds, P parameters, B batch, L layers, D hidden size, C classes,
K random numbers per row or constants of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gaam_cache.common.devices import float64
from gaam_decoder.decoder import Decoder
from gaam_decoder.optimizers.base import (
    Optimizer,
    Stacked,
    States,
    per_seed,
    state_tensors,
)
from gaam_decoder.tasks import Task

# the defaults of torch's GradScaler
START = 65536.0
GROWTH = 2.0
BACKOFF = 0.5
INTERVAL = 2000  # steps with finite gradients in a row before the scale grows


class Scaling(NamedTuple):
    """Dynamic loss scaling of every seed by itself, as torch.amp.GradScaler does it.

    Losses are multiplied by a scale. A step whose gradients are not all finite changes
    neither parameters nor the state of the optimizer, and does not count as its step.

    Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; torch.amp.
    """

    scale_S: Tensor  # float32, whatever the parameters are
    # steps with finite gradients in a row since the scale changed
    good_steps_S: Tensor
    steps_S: Tensor  # all steps that changed the parameters
    skipped_steps_S: Tensor  # skipped steps of the epoch: a gradient was not finite
    # rows of the epoch in batches whose loss was not finite
    rows_without_loss_S: Tensor

    @classmethod
    def initial(cls, num_seeds: int, device: torch.device) -> Scaling:
        """The scaling before the first step."""
        scale_S = torch.full((num_seeds,), START, device=device, dtype=torch.float32)
        count_S = torch.zeros(num_seeds, dtype=torch.int64, device=device)
        return cls(
            scale_S=scale_S,
            good_steps_S=count_S,
            steps_S=count_S.clone(),
            skipped_steps_S=count_S.clone(),
            rows_without_loss_S=count_S.clone(),
        )

    def update(self, is_finite_S: Tensor) -> None:
        """Lower the scale of a seed after a step with gradients that are not finite.

        After ``INTERVAL`` steps in a row with finite gradients it rises, unless it
        would become infinite.

        Args:
            is_finite_S: whether all gradients of a seed are finite in this step.
        """
        good_steps_S = self.good_steps_S + 1
        grows_S = is_finite_S & (good_steps_S == INTERVAL)
        larger_S = self.scale_S * GROWTH
        grown_S = torch.where(grows_S & larger_S.isfinite(), larger_S, self.scale_S)
        self.scale_S.copy_(torch.where(is_finite_S, grown_S, self.scale_S * BACKOFF))
        self.good_steps_S.copy_(torch.where(is_finite_S & ~grows_S, good_steps_S, 0))
        self.steps_S.add_(is_finite_S)
        self.skipped_steps_S.add_(~is_finite_S)


class Weights(NamedTuple):
    """The parameters and buffers of S seeds."""

    parameters: Stacked
    buffers: Stacked  # and the parameters that are not trained

    def cloned(self) -> Weights:
        """A copy, which further steps do not change."""
        parameters = {name: value.clone() for name, value in self.parameters.items()}
        buffers = {name: value.clone() for name, value in self.buffers.items()}
        return Weights(parameters, buffers)


class State(NamedTuple):
    """The tensors of a seed batch; a training step changes them in place."""

    parameters: Stacked
    buffers: Stacked
    optimizer: States
    loss_S: Tensor  # sum over the rows of the epoch so far
    score_S: Tensor  # sums of ``Task.batch_sums`` over the epoch so far
    scaling: Scaling | None  # of the losses, if they are scaled

    @classmethod
    def initial(
        cls,
        decoders: Sequence[Decoder],
        device: torch.device,
        optimizer: Optimizer,
        task: Task,
        *,
        scaled: bool,
    ) -> State:
        """The state before the first step.

        Args:
            decoders: fresh ones, one for each seed.
            device: that trains.
            optimizer: whose own state is added.
            task: which decides the sums that make the training score.
            scaled: whether losses are scaled, as float16 needs it.
        """
        num_seeds = len(decoders)
        parameters = _stacked(list(map(_trained_parameters, decoders)), device)
        buffers = _stacked(list(map(_untrained_tensors, decoders)), device)
        return cls(
            parameters=parameters,
            buffers=buffers,
            optimizer=optimizer.initial_states(parameters),
            loss_S=torch.zeros(num_seeds, dtype=decoders[0].dtype, device=device),
            score_S=torch.zeros(
                (num_seeds, *task.sums_shape),
                dtype=torch.int64 if task.sums_are_counts else decoders[0].dtype,
                device=device,
            ),
            scaling=Scaling.initial(num_seeds, device) if scaled else None,
        )

    @property
    def weights(self) -> Weights:
        """The parameters and buffers, without the rest of the state."""
        return Weights(self.parameters, self.buffers)

    def tensors(self) -> Stacked:
        """The tensors to go on with after an epoch, by their names in a checkpoint."""
        tensors = state_tensors(self.optimizer)
        for name, value in self.parameters.items():
            tensors[f"parameters.{name}"] = value
        for name, value in self.buffers.items():
            tensors[f"buffers.{name}"] = value

        # of a scaled loss: the scale, the steps since the last overflow and all steps;
        # the counts of skipped steps and lost rows start anew in every epoch
        if self.scaling is not None:
            tensors["scaling.scale_S"] = self.scaling.scale_S
            tensors["scaling.good_S"] = self.scaling.good_steps_S
            tensors["scaling.steps_S"] = self.scaling.steps_S
        return tensors


def _trained_parameters(decoder: Decoder) -> Stacked:
    """The parameters by name, without those that a user froze."""
    return {
        name: value for name, value in decoder.named_parameters() if value.requires_grad
    }


def _untrained_tensors(decoder: Decoder) -> Stacked:
    """The buffers by name, and the parameters that a user froze."""
    frozen = {
        name: value
        for name, value in decoder.named_parameters()
        if not value.requires_grad
    }
    return dict(decoder.named_buffers()) | frozen


def _stacked(tensors_by_seed: Sequence[Stacked], device: torch.device) -> Stacked:
    """Stack the tensors of the seeds that have the same name, on a device."""
    stacks: Stacked = {}
    for name in tensors_by_seed[0]:
        values = [tensors[name].detach() for tensors in tensors_by_seed]
        stacks[name] = torch.stack(values).to(device)
    return stacks


class Batch(NamedTuple):
    """The input of a step: every seed has rows of its own."""

    x_SBLD: Tensor  # of any floating type
    label_SB: Tensor
    noise_SBK: Tensor | None  # uniform numbers, or None where the decoder needs none
    lr_S: Tensor
    step_constants: Tensor  # ``Optimizer.numbers`` of this step, (K,)
    weight_SB: Tensor | None = None
    """Weights of the rows in the loss. With label sets (S, C): weights of the labels.
    None: all weigh the same."""


def unscaled(gradients: Stacked, scale_S: Tensor) -> tuple[Stacked, Tensor]:
    """Divide the gradients by the scale of the loss.

    Returns:
        The gradients of the unscaled loss, and whether all gradients of a seed were
        finite before the division, as torch.amp asks, (S,).
    """
    is_finite_PS = [
        gradient.isfinite().flatten(1).all(1) for gradient in gradients.values()
    ]
    inverse_S = float64(scale_S).reciprocal().to(scale_S)
    unscaled_gradients = {
        name: gradient * per_seed(inverse_S, gradient)
        for name, gradient in gradients.items()
    }
    return unscaled_gradients, torch.stack(is_finite_PS).all(0)


def clipped(gradients: Stacked, largest_norm: float) -> Stacked:
    """Clip the gradient of every seed to a norm, as torch's clip_grad_norm_ does.

    The norm of a seed is that over all P parameters.
    """
    norms_PS = [gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]
    norm_S = torch.stack(norms_PS).norm(dim=0)
    factor_S = (largest_norm / (norm_S + 1e-6)).clamp(max=1.0)
    return {
        name: gradient * per_seed(factor_S, gradient)
        for name, gradient in gradients.items()
    }
