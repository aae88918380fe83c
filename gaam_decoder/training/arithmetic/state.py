"""The tensors that a training step reads and changes.

S seeds, P parameters, B batch, L layers, D hidden size, K noise per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gaam_cache.common.devices import float64
from gaam_decoder.decoder import Decoder

Stacked = dict[str, Tensor]  # parameters or buffers by name, each (S, ...)

# the defaults of torch's GradScaler
START = 65536.0
GROWTH = 2.0
BACKOFF = 0.5
INTERVAL = 2000  # good steps in a row before the scale grows


class Scaling(NamedTuple):
    """Dynamic loss scaling of every seed by itself, as torch.amp.GradScaler does it.

    Losses are multiplied by a scale. A step whose gradients are not all finite changes
    nothing: parameters, moments and Adam's count of steps stay as they were. Source:
    Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; torch.amp.
    """

    scale_S: Tensor  # float32, whatever the parameters are
    good_S: Tensor  # good steps in a row since the scale changed
    steps_S: Tensor  # all steps that changed the parameters: Adam's t
    skipped_S: Tensor  # skipped steps of the epoch: a gradient was not finite
    lost_S: Tensor  # rows of the epoch with a loss that was not finite: in no mean

    @classmethod
    def of(cls, seeds: int, device: torch.device) -> Scaling:
        """The scaling before the first step."""
        scale_S = torch.full((seeds,), START, device=device, dtype=torch.float32)
        count_S = torch.zeros(seeds, dtype=torch.int64, device=device)
        return cls(
            scale_S=scale_S,
            good_S=count_S,
            steps_S=count_S.clone(),
            skipped_S=count_S.clone(),
            lost_S=count_S.clone(),
        )

    def update(self, finite_S: Tensor) -> None:
        """Raise a scale after enough finite steps; lower it after another."""
        good_S = self.good_S + 1
        due_S = finite_S & (good_S == INTERVAL)
        larger_S = self.scale_S * GROWTH
        grown_S = torch.where(due_S & larger_S.isfinite(), larger_S, self.scale_S)
        self.scale_S.copy_(torch.where(finite_S, grown_S, self.scale_S * BACKOFF))
        self.good_S.copy_(torch.where(finite_S & ~due_S, good_S, 0))
        self.steps_S.add_(finite_S)
        self.skipped_S.add_(~finite_S)


class Weights(NamedTuple):
    """The parameters and buffers of S seeds."""

    parameters: Stacked
    buffers: Stacked


class State(NamedTuple):
    """A group of S seeds; a step changes it in place."""

    parameters: Stacked
    buffers: Stacked
    moments: dict[str, Stacked]  # of the optimiser, by its names for them
    loss_S: Tensor  # sum over the rows of the epoch so far
    hit_S: Tensor  # correctly classified rows of the epoch so far
    scaling: Scaling | None  # of the losses, if they are scaled

    @classmethod
    def of(
        cls,
        decoders: Sequence[Decoder],
        device: torch.device,
        moments: Sequence[str],
        *,
        scaled: bool,
    ) -> State:
        """The state before the first step of fresh decoders, one per seed."""

        def stacked(tensors_by_seed: Sequence[Stacked]) -> Stacked:
            stacks: Stacked = {}
            for name in tensors_by_seed[0]:
                values = [tensors[name].detach() for tensors in tensors_by_seed]
                stacks[name] = torch.stack(values).to(device)
            return stacks

        parameters = stacked([dict(decoder.named_parameters()) for decoder in decoders])
        return cls(
            parameters=parameters,
            buffers=stacked([dict(decoder.named_buffers()) for decoder in decoders]),
            moments={
                moment: {
                    name: torch.zeros_like(value) for name, value in parameters.items()
                }
                for moment in moments
            },
            loss_S=torch.zeros(len(decoders), dtype=decoders[0].dtype, device=device),
            hit_S=torch.zeros(len(decoders), dtype=torch.int64, device=device),
            scaling=Scaling.of(len(decoders), device) if scaled else None,
        )

    @property
    def weights(self) -> Weights:
        return Weights(self.parameters, self.buffers)

    def tensors(self) -> Stacked:
        """The tensors to go on with after an epoch, by name."""
        parts = {"parameters": self.parameters, "buffers": self.buffers, **self.moments}
        tensors: Stacked = {}
        for part, values in parts.items():
            for name, value in values.items():
                tensors[f"{part}.{name}"] = value

        # the other counts start anew in every epoch
        if self.scaling is not None:
            tensors["scaling.scale_S"] = self.scaling.scale_S
            tensors["scaling.good_S"] = self.scaling.good_S
            tensors["scaling.steps_S"] = self.scaling.steps_S
        return tensors


class Batch(NamedTuple):
    """The input of a step: every seed has rows of its own."""

    x_SBLD: Tensor  # of any floating type
    label_SB: Tensor
    noise_SBK: Tensor | None  # uniform numbers, or None where the decoder needs none
    lr_S: Tensor
    numbers: Tensor  # of the optimiser at this step, (K,)
    weight_SB: Tensor | None = None  # of rows in the loss; None weights all alike


def unscaled(
    gradients: dict[str, Tensor], scale_S: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of the unscaled loss, and whether those of a seed are finite, (S,).

    As in torch, the gradients of the scaled loss must be finite.
    """
    finite_PS = [g.isfinite().flatten(1).all(1) for g in gradients.values()]
    inverse_S = float64(scale_S).reciprocal().to(scale_S)
    own = {name: g * of_seeds(inverse_S, g) for name, g in gradients.items()}
    return own, torch.stack(finite_PS).all(0)


def clipped(gradients: Stacked, most: float) -> Stacked:
    """Clip the gradient of every seed to a norm, as torch's clip_grad_norm_ does."""
    norms_PS = [g.flatten(1).norm(dim=1) for g in gradients.values()]
    norm_S = torch.stack(norms_PS).norm(dim=0)
    factor_S = (most / (norm_S + 1e-6)).clamp(max=1.0)
    return {name: g * of_seeds(factor_S, g) for name, g in gradients.items()}


def of_seeds(value_S: Tensor, like: Tensor) -> Tensor:
    """One number per seed, shaped to broadcast with (S, ...); a scalar stays."""
    if value_S.ndim == 0:
        return value_S
    return value_S.view(-1, *(1,) * (like.ndim - 1))
