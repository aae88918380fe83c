"""What a training step reads and changes.

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

START, GROWTH, BACKOFF = 65536.0, 2.0, 0.5
INTERVAL = 2000  # good steps in a row before the scale grows. All four are GradScaler's defaults


class Scaling(NamedTuple):
    """Dynamic loss scaling as torch.amp.GradScaler does it, for every seed by itself, in place.

    Losses are multiplied by a scale. A step whose gradients are not all finite is not taken:
    parameters, moments and Adam's count of steps stay as they were. Source: Micikevicius et al.
    2018, arXiv 1710.03740, section 3.2; torch.amp.
    """

    scale_S: Tensor  # float32, whatever the parameters are
    good_S: Tensor  # good steps in a row since the scale changed
    steps_S: Tensor  # steps that were taken in all: Adam's t
    skipped_S: Tensor  # steps of the epoch so far that were not taken: a gradient was not finite
    lost_S: Tensor  # rows of the epoch so far whose loss was not finite: they are in no mean

    @classmethod
    def of(cls, seeds: int, device: torch.device) -> Scaling:
        counts = (
            torch.zeros(seeds, dtype=torch.int64, device=device) for _ in range(4)
        )
        return cls(
            torch.full((seeds,), START, device=device, dtype=torch.float32), *counts
        )

    def update(self, finite_S: Tensor) -> None:
        """After good steps, whose gradients are finite, a scale grows; after another it falls."""
        good_S = self.good_S + 1
        due_S = finite_S & (good_S == INTERVAL)
        larger_S = self.scale_S * GROWTH
        grown_S = torch.where(due_S & larger_S.isfinite(), larger_S, self.scale_S)
        self.scale_S.copy_(torch.where(finite_S, grown_S, self.scale_S * BACKOFF))
        self.good_S.copy_(torch.where(finite_S & ~due_S, good_S, 0))
        self.steps_S.add_(finite_S)
        self.skipped_S.add_(~finite_S)


class Weights(NamedTuple):
    """What S seeds know."""

    parameters: Stacked
    buffers: Stacked


class State(NamedTuple):
    """A group of S seeds; a step changes it in place."""

    parameters: Stacked
    buffers: Stacked
    moments: dict[
        str, Stacked
    ]  # what the optimiser remembers of every parameter, by its names
    loss_S: Tensor  # losses of the epoch's rows so far, added up
    hit_S: Tensor  # rows of the epoch that were right when they were seen
    scaling: Scaling | None  # of the losses, where they are scaled

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

        def stacked(of_seeds: Sequence[Stacked]) -> Stacked:
            return {
                name: torch.stack([of_seed[name].detach() for of_seed in of_seeds]).to(
                    device
                )
                for name in of_seeds[0]
            }

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
        """What has to be kept to go on after an epoch, by name."""
        parts = {"parameters": self.parameters, "buffers": self.buffers, **self.moments}
        found = {
            f"{part}.{name}": value
            for part, of in parts.items()
            for name, value in of.items()
        }
        if self.scaling is not None:
            lasting = ("scale_S", "good_S", "steps_S")
            found |= {
                f"scaling.{name}": getattr(self.scaling, name) for name in lasting
            }
        return found


class Batch(NamedTuple):
    """What a step is given: rows of its own for every seed."""

    x_SBLD: Tensor  # of any floating type
    label_SB: Tensor
    noise_SBK: Tensor | None  # uniform numbers, or None where the decoder needs none
    lr_S: Tensor
    numbers: Tensor  # of the optimiser at this step, (K,)
    weight_SB: Tensor | None = None  # of rows in the loss; None where all count alike


def unscaled(
    gradients: dict[str, Tensor], scale_S: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of the loss itself, and whether all those of a seed are finite, (S,).

    What is looked at are the gradients of the scaled loss, as there.
    """
    finite_PS = [g.isfinite().flatten(1).all(1) for g in gradients.values()]
    inverse_S = float64(scale_S).reciprocal().to(scale_S)
    own = {name: g * of_seeds(inverse_S, g) for name, g in gradients.items()}
    return own, torch.stack(finite_PS).all(0)


def clipped(gradients: Stacked, most: float) -> Stacked:
    """Every seed's gradient at a norm of at most ``most``, as torch's clip_grad_norm_ does it."""
    norms_PS = [g.flatten(1).norm(dim=1) for g in gradients.values()]
    norm_S = torch.stack(norms_PS).norm(dim=0)
    factor_S = (most / (norm_S + 1e-6)).clamp(max=1.0)
    return {name: g * of_seeds(factor_S, g) for name, g in gradients.items()}


def of_seeds(value_S: Tensor, like: Tensor) -> Tensor:
    """One number per seed, in a shape that meets (S, ...); one number for all stays one."""
    return value_S if value_S.ndim == 0 else value_S.view(-1, *(1,) * (like.ndim - 1))
