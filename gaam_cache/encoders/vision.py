"""Image encoders of the transformers library: BEiT, ViT, DINOv2, DeiT, CLIP's, SigLIP's, ...

B batch, T positions, P patches, C channels, H height, W width, D hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
import transformers
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Inputs, Lazy
from gaam_cache.encoders._forward import Batch, Forward, Unusable
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._pictures import ImageProcessor, Layout, find_layout
from gaam_cache.encoders._probe import Items
from gaam_cache.encoders._weights import skeleton

POOLED = "patches, not class token, distillation token or registers (first: the class token)"
"""What is pooled, as the fingerprint and ``gaam inspect`` have it."""
PICTURES = 4
"""That the probe reads, in batches of ``ROWS`` and more."""


class VisionEncoder(ModelEncoder):
    """Pictures in, pooled states of every layer out.

    Of a model of pictures and texts, the part that reads pictures. All pictures come out of the
    encoder's own image processor in one size, so that no batch is padded; ``mean``, ``max`` and
    ``last`` are over patches alone, ``first`` is the class token. Where those stand is measured.
    """

    noun: ClassVar[str] = "picture"
    unit: ClassVar[str] = "patches"
    given: ClassVar[frozenset[str]] = frozenset({"pixel_values"})
    reads: ClassVar[str] = "an image encoder and image processor"
    states_of: ClassVar[str] = "patch"
    _processor: ImageProcessor

    @classmethod
    def _read(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Self:
        processor = ImageProcessor(located.path)
        part = vision_part(skeleton(model_config))
        if part is None:
            raise Unusable("it has no part that reads pictures alone")
        size = getattr(part.config, "patch_size", None)
        sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size, size]
        if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
            raise Unusable(f"its configuration has the patch_size {size}: one or two numbers do")
        # pixels that fill no patch are left out
        patches = (processor.shape[1] // sides[0]) * (processor.shape[2] // sides[1])
        if not patches:
            raise Unusable(f"its patches are larger than pictures of {processor.shape}")
        encoder = cls(located, config, model_config, patches)
        encoder._processor = processor
        return encoder

    def _settings(self) -> dict[str, Any]:
        return {"pooled": POOLED, "image_processor": self._processor.settings()}

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Pictures, which are decoded, resized and normalised when they are asked for."""
        return Inputs(
            items=Lazy(rows, self._processor),
            lengths=np.full(len(rows), self.max_length),
            truncated=[False] * len(rows),
            decoded=True,
        )

    def _without_numbers(self) -> dict[str, Tensor]:
        shape = (1, *self._processor.shape)
        return {"pixel_values": torch.zeros(shape, dtype=torch.bfloat16, device="meta")}

    def _part_of(self, model: Any) -> Any:
        return vision_part(model)

    def _forward_of(self, part: Any, model: Any) -> _VisionForward:  # noqa: ARG002
        forward = _VisionForward(part, device=self.device, pooling=self._config.pool)
        forward.takes_mask = False  # of a picture there is nothing that is not there
        beside = self._processor.gives_beside()
        if more := sorted(name for name in beside if name in forward.takes or "mask" in name):
            raise Unusable(
                f"its image processor gives {', '.join(more)} beside the picture, which would have "
                "to reach the model"
            )
        forward.layout = find_layout(forward, self._processor.shape, self.dtype)
        start, stop = forward.layout
        if stop - start != self.max_length:
            raise Unusable(
                f"{stop - start} positions depend on the picture, of which its configuration makes "
                f"{self.max_length} patches"
            )
        if not start and (summaries := forward.summaries()):
            raise Unusable(
                f"it has no class token, which --pool {','.join(summaries)} needs: take mean, max "
                "or last"
            )
        return forward

    def _candidates(self, part: Any, model: Any) -> tuple[Sequence[Items], int]:  # noqa: ARG002
        """Noise: all pictures are of one length."""
        shape = self._processor.shape
        rng = np.random.default_rng(0)
        pictures = rng.standard_normal((PICTURES, *shape), dtype=np.float32)
        return [list(pictures)], len(pictures[0])


class _VisionForward(Forward):
    """Pictures of one shape; patches are pooled, and nothing else."""

    layout: Layout = Layout(0, 0)
    """Where the patches are; measured."""

    def summaries(self) -> list[str]:
        """Names of the poolings that read what stands before the patches."""
        return [name for name, pool in self._poolings.items() if pool.summary]

    def batch(self, items: Sequence[Any]) -> Batch:
        """Pictures as (B, C, H, W) in the arithmetic of the model."""
        pixel_BCHW = self.to_device(np.stack(list(items)))
        patches = torch.full((len(pixel_BCHW),), self.layout.stop - self.layout.start)
        return Batch(
            inputs={"pixel_values": pixel_BCHW.to(self.dtype)},
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
        takes = inspect.signature(module.forward).parameters
        if hasattr(module, "config") and "pixel_values" in takes and "input_ids" not in takes:
            found.append((name.count(".") + 1 if name else 0, module))
    least = min((depth for depth, _ in found), default=0)
    outermost = [module for depth, module in found if depth == least]
    return outermost[0] if len(outermost) == 1 else None
