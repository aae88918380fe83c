"""What a training step reads and changes.

S seeds, B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gaam_decoder.decoder import Decoder
from gaam_decoder.training.arithmetic.scaling import Scaling

Stacked = dict[str, Tensor]  # parameters or buffers by name, each (S, ...)


class Weights(NamedTuple):
    """What S seeds know."""

    parameters: Stacked
    buffers: Stacked


class State(NamedTuple):
    """A group of S seeds; a step changes it in place."""

    parameters: Stacked
    buffers: Stacked
    exp_avg: Stacked  # first moments of the gradients
    exp_avg_sq: Stacked  # second moments
    loss_S: Tensor  # losses of the epoch's rows so far, added up
    hit_S: Tensor  # rows of the epoch that were right when they were seen
    scaling: Scaling | None  # of the losses, where they are scaled

    @classmethod
    def of(cls, decoders: Sequence[Decoder], device: torch.device, *, scaled: bool) -> State:
        """The state before the first step of fresh decoders, one per seed."""

        def stacked(of_seeds: Sequence[Stacked]) -> Stacked:
            return {
                name: torch.stack([of_seed[name].detach() for of_seed in of_seeds]).to(device)
                for name in of_seeds[0]
            }

        parameters = stacked([dict(decoder.named_parameters()) for decoder in decoders])
        return cls(
            parameters=parameters,
            buffers=stacked([dict(decoder.named_buffers()) for decoder in decoders]),
            exp_avg={name: torch.zeros_like(value) for name, value in parameters.items()},
            exp_avg_sq={name: torch.zeros_like(value) for name, value in parameters.items()},
            loss_S=torch.zeros(len(decoders), dtype=decoders[0].dtype, device=device),
            hit_S=torch.zeros(len(decoders), dtype=torch.int64, device=device),
            scaling=Scaling.of(len(decoders), device) if scaled else None,
        )

    @property
    def weights(self) -> Weights:
        """What an evaluation needs of it."""
        return Weights(self.parameters, self.buffers)

    def tensors(self) -> Stacked:
        """What has to be kept to go on after an epoch, by name."""
        found = {
            f"{part}.{name}": value
            for part in ("parameters", "buffers", "exp_avg", "exp_avg_sq")
            for name, value in getattr(self, part).items()
        }
        if self.scaling is not None:
            lasting = ("scale_S", "good_S", "steps_S")
            found |= {f"scaling.{name}": getattr(self.scaling, name) for name in lasting}
        return found


class Batch(NamedTuple):
    """What a step is given: rows of its own for every seed."""

    x_SBLD: Tensor  # of any floating type
    label_SB: Tensor
    noise_SBK: Tensor | None  # uniform numbers, or None where the decoder needs none
    lr_S: Tensor
    bias_correction: Tensor  # (2,), ``1 - beta1^t`` and ``sqrt(1 - beta2^t)`` at step t
    weight_SB: Tensor | None = None  # of rows in the loss; None where all count alike
