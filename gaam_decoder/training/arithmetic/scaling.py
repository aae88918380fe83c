"""Dynamic loss scaling as torch.amp.GradScaler does it with its defaults, for every seed by itself.

A step whose gradients are not all finite is not taken: parameters, moments and Adam's count of
steps stay as they were. Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; torch.amp.

S seeds, P parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gaam_cache.devices import float64

START, GROWTH, BACKOFF = 65536.0, 2.0, 0.5
INTERVAL = 2000  # good steps in a row before the scale grows. All four are GradScaler's defaults


class Scaling(NamedTuple):
    """What the losses of S seeds are multiplied by, and what came of it; changes in place."""

    scale_S: Tensor  # float32, whatever the parameters are
    good_S: Tensor  # good steps in a row since the scale changed
    steps_S: Tensor  # steps that were taken in all: Adam's t
    skipped_S: Tensor  # steps of the epoch so far that were not taken: a gradient was not finite
    lost_S: Tensor  # rows of the epoch so far whose loss was not finite: they are in no mean

    @classmethod
    def of(cls, seeds: int, device: torch.device) -> Scaling:
        """Before the first step."""
        counts = (torch.zeros(seeds, dtype=torch.int64, device=device) for _ in range(4))
        return cls(torch.full((seeds,), START, device=device, dtype=torch.float32), *counts)

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


def unscaled(gradients: dict[str, Tensor], scale_S: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of the loss itself, and whether all those of a seed are finite, (S,).

    What is looked at are the gradients of the scaled loss, as there.
    """
    finite_PS = [g.isfinite().flatten(1).all(1) for g in gradients.values()]
    inverse_S = float64(scale_S).reciprocal().to(scale_S)
    own = {name: g * of_seeds(inverse_S, g) for name, g in gradients.items()}
    return own, torch.stack(finite_PS).all(0)


def of_seeds(value_S: Tensor, like: Tensor) -> Tensor:
    """One number per seed, in a shape that meets (S, ...); one number for all stays one."""
    return value_S if value_S.ndim == 0 else value_S.view(-1, *(1,) * (like.ndim - 1))
