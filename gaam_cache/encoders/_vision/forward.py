"""One batch of pictures through a model of the transformers library.

B batch, T positions, C channels, H height, W width, D hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.encoders._model.forward import Batch, Forward, Unusable
from gaam_cache.encoders._vision.layout import Layout, find_layout


class VisionForward(Forward):
    """Pictures of one shape; patches are pooled, and nothing else."""

    reads: ClassVar[str] = "pixels"
    state_of: ClassVar[str] = "patch"
    layout: Layout = Layout(0, 0)
    """Where the patches are; set by ``measure``."""

    def __init__(self, model: nn.Module, *, device: torch.device, pooling: Sequence[str]) -> None:
        super().__init__(model, device=device, pooling=pooling)
        self.takes_mask = False  # of a picture there is nothing that is not there
        self._dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())

    def measure(self, shape: tuple[int, ...], dtype: str) -> None:
        """Find the patches; raises as ``find_layout``."""
        with torch.inference_mode():
            self.layout = find_layout(self, shape, dtype)

    def summaries(self) -> list[str]:
        """Names of the poolings that read what stands before the patches."""
        return [name for name, pool in self._poolings.items() if pool.summary]

    def named(self, item: Any) -> str:
        """By its shape."""
        return f"{' x '.join(map(str, item.shape))} {self.reads}"

    def batch(self, items: Sequence[Any]) -> Batch:
        """Pictures as (B, C, H, W) in the arithmetic of the model."""
        pixel_BCHW = self.to_device(np.stack(list(items)))
        patches = torch.full((len(pixel_BCHW),), self.layout.stop - self.layout.start)
        return Batch(
            inputs={"pixel_values": pixel_BCHW.to(self._dtype)},
            length_B=patches.to(self.device),
            padded=False,
            positions=None,
        )

    def mask_of(self, batch: Batch) -> Tensor:
        """(B,), which no model asks for."""
        return torch.ones_like(batch.length_B)

    def _reduce(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        start, stop = self.layout
        if x_BTD.shape[1] < stop:
            raise Unusable(f"a layer has {x_BTD.shape[1]} positions, of {stop} or more before it")
        here_B = batch.length_B.to(x_BTD.device)
        patches_BPD, before_BTD = x_BTD[:, start:stop], x_BTD[:, :start]
        return {
            name: pool(before_BTD, torch.full_like(here_B, start))
            if pool.summary
            else pool(patches_BPD, here_B)
            for name, pool in self._poolings.items()
        }


def vision_part(model: Any) -> Any | None:
    """What reads the pictures: the model, or the one part of it that takes nothing else.

    Of several such parts the outermost; None where there is none, or more than one.
    """
    found: list[tuple[int, Any]] = []
    for name, module in model.named_modules():
        if hasattr(module, "config") and _takes_pictures_alone(module):
            found.append((name.count(".") + 1 if name else 0, module))
    least = min((depth for depth, _ in found), default=0)
    outermost = [module for depth, module in found if depth == least]
    return outermost[0] if len(outermost) == 1 else None


def _takes_pictures_alone(module: nn.Module) -> bool:
    takes = inspect.signature(module.forward).parameters
    return "pixel_values" in takes and "input_ids" not in takes
