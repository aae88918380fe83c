"""What a training step reads and changes.

S seeds, B batch, L layers, D hidden size, C classes, K noise per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gaam_decoder.training.arithmetic.scaling import Scaling

Stacked = dict[str, Tensor]  # parameters or buffers by name, each (S, ...)


class Weights(NamedTuple):
    """What S seeds know."""

    parameters: Stacked
    buffers: Stacked

    def copy(self) -> Weights:
        """The same numbers elsewhere."""
        return Weights(*({name: one.clone() for name, one in part.items()} for part in self))

    def keep(self, place: int, new: Weights) -> None:
        """Overwrite those of one seed."""
        for part, other in zip(self, new, strict=True):
            for name, value in other.items():
                part[name][place].copy_(value[place])


class State(NamedTuple):
    """A group of S seeds; a step changes it in place."""

    parameters: Stacked
    buffers: Stacked
    exp_avg: Stacked  # first moments of the gradients
    exp_avg_sq: Stacked  # second moments
    loss_S: Tensor  # noqa: N815 a shape suffix
    """Losses of the epoch's rows so far, added up."""
    hit_S: Tensor  # noqa: N815
    """Rows of the epoch that were right when they were seen."""
    scaling: Scaling | None  # of the losses, where they are scaled

    @classmethod
    def of(
        cls,
        decoders: Sequence[nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        *,
        scaled: bool = False,
    ) -> State:
        """The state before the first step of fresh decoders, one per seed."""
        parameters = _stacked([dict(decoder.named_parameters()) for decoder in decoders], device)
        return cls(
            parameters=parameters,
            buffers=_stacked([dict(decoder.named_buffers()) for decoder in decoders], device),
            exp_avg={name: torch.zeros_like(value) for name, value in parameters.items()},
            exp_avg_sq={name: torch.zeros_like(value) for name, value in parameters.items()},
            loss_S=torch.zeros(len(decoders), dtype=dtype, device=device),
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

    x_SBLD: Tensor  # noqa: N815
    """Of any floating type."""
    label_SB: Tensor  # noqa: N815
    noise_SBK: Tensor | None  # noqa: N815
    """Uniform numbers, or None where the decoder needs none."""
    lr_S: Tensor  # noqa: N815
    bias_correction: Tensor  # (2,), ``1 - beta1^t`` and ``sqrt(1 - beta2^t)`` at step t
    weight_SB: Tensor | None = None  # noqa: N815
    """How much every row counts in the loss; None where all count alike."""


def _stacked(of_seeds: Sequence[Stacked], device: torch.device) -> Stacked:
    return {
        name: torch.stack([of_seed[name].detach() for of_seed in of_seeds]).to(device)
        for name in of_seeds[0]
    }
