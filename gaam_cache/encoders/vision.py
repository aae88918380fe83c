"""Image encoders of the transformers library: BEiT, ViT, DINOv2, DeiT, CLIP's, SigLIP's, ...

B batch, T positions, P patches, C channels, H height, W width, D hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common.errors import DataError
from gaam_cache.encoders._fixed_rows import FixedPicture, fixed_pictures
from gaam_cache.encoders._forward import Batch, Forward, Unusable, said
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import Items
from gaam_cache.encoders._weights import skeleton
from gaam_cache.encoders.base import Inputs, LazyItems
from gaam_cache.store.rounding import ROUNDING

POOLED = (
    "patches, not class token, distillation token or registers (first: the class token)"
)
"""What is pooled, as the fingerprint and ``gaam inspect`` have it."""
PICTURES = 4  # that the probe reads, in batches of ``ROWS`` and more
BACKEND = "pil"  # on every machine: torchvision gives other numbers
SHAPES = (
    (48, 64),
    (97, 31),
    (700, 500),
)  # heights and widths that a processor is tried on
CORNER = 4  # a changed corner has a fourth of a side: no patch is in two, unless there is but one


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
    _processor: _ImageProcessor
    _patches: int

    def _read(self) -> int:
        self._processor = processor = _ImageProcessor(self._located.path)
        part = self._part_of(skeleton(self._model_config))
        size = getattr(part.config, "patch_size", None)
        sides: list[Any] = (
            list(size) if isinstance(size, list | tuple) else [size, size]
        )
        if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
            raise Unusable(
                f"its configuration has the patch_size {size}: one or two numbers do"
            )
        # pixels that fill no patch are left out
        self._patches = (processor.shape[1] // sides[0]) * (
            processor.shape[2] // sides[1]
        )
        return self._patches

    def _settings(self) -> dict[str, Any]:
        return {"pooled": POOLED, "image_processor": self._processor.settings()}

    def reference_rows(self) -> Sequence[FixedPicture]:
        """Two small pictures."""
        return fixed_pictures()

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Pictures, which are decoded, resized and normalised when they are asked for."""
        return Inputs(
            items=LazyItems(rows, self._processor),
            lengths=np.full(len(rows), self._patches),
            truncated=[False] * len(rows),
        )

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """How many patches, and of how large a picture."""
        _, height, width = self._processor.shape
        return f"{super().describe_row(inputs, row)} of {width} x {height} pixels"

    def _part_of(self, model: Any) -> Any:
        """What reads the pictures: the outermost part that takes nothing else."""
        found: dict[int, list[Any]] = {}
        for name, module in model.named_modules():
            takes = inspect.signature(module.forward).parameters
            if (
                hasattr(module, "config")
                and "pixel_values" in takes
                and "input_ids" not in takes
            ):
                found.setdefault(name.count(".") + 1 if name else 0, []).append(module)
        outermost = found[min(found)] if found else []
        if len(outermost) != 1:
            raise Unusable("it has no part that reads pictures alone")
        return outermost[0]

    def _forward_of(self, part: Any, model: Any) -> _VisionForward:  # noqa: ARG002
        forward = _VisionForward(part, device=self.device, pooling=self._config.pool)
        forward.takes_mask = False  # of a picture there is nothing that is not there
        beside = self._processor.beside
        if more := sorted(
            name for name in beside if name in forward.takes or "mask" in name
        ):
            raise Unusable(
                f"its image processor gives more than a picture: {', '.join(more)}"
            )
        forward.layout = find_layout(forward, self._processor.shape, self.dtype)
        if (count := len(forward.layout)) != self._patches:
            raise Unusable(
                f"{count} positions depend on the picture, of {self._patches} patches"
            )
        summaries = [name for name, pool in forward.poolings.items() if pool.summary]
        if summaries and not forward.layout.start:
            raise Unusable(
                f"it has no class token, which --pool {','.join(summaries)} needs"
            )
        return forward

    def _candidates(self, part: Any, reach: int) -> tuple[Sequence[Items], int]:  # noqa: ARG002
        """Noise: all pictures are of one length."""
        shape = (PICTURES, *self._processor.shape)
        pictures = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        return [list(pictures)], len(pictures[0])


class _ImageProcessor:
    """Pictures of any shape in, arrays of one shape out, by the encoder's own image processor."""

    def __init__(self, folder: Path) -> None:
        try:
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(
                folder, backend=BACKEND, local_files_only=True, trust_remote_code=False
            )
            found = type(self._processor).__name__
        except (
            ImportError
        ) as error:  # where there is none on Pillow, others are looked for
            self._processor, found = None, str(error).strip().partition(" but ")[0]
        if getattr(self._processor, "backend", None) != BACKEND:
            raise Unusable(
                f"its image processor does not run on Pillow, as ViTImageProcessorPil does: {found}"
            )
        self.beside = frozenset[str]()  # what else it gives beside the picture itself
        shapes = {
            self._process(np.zeros((*shape, 3), np.uint8)).shape for shape in SHAPES
        }
        if len(shapes) > 1:
            raise Unusable(
                f"its image processor brings pictures to other sizes: {sorted(shapes)}; give "
                "'size' a height and a width in a copy of its preprocessor_config.json"
            )
        [self.shape] = shapes  # (C, H, W) of what it gives

    def __call__(self, row: Any) -> NDArray[np.float32]:
        """One picture, resized and normalised: (C, H, W)."""
        pixel_HWC: NDArray[np.uint8] = row.pixels()
        try:
            picture = self._process(pixel_HWC)
            if picture.shape != self.shape:
                raise Unusable(f"it makes {picture.shape} of it")
            return picture
        except MemoryError:
            raise
        except Exception as error:  # processors of others raise what they like
            height, width = pixel_HWC.shape[:2]
            raise DataError(
                "the encoder's image processor cannot read a picture",
                expected=f"an array of {self.shape} of one of {width} x {height} pixels",
                found=said(error),
                where=row.where,
                hint="remove the row, or choose another encoder",
            ) from error

    def settings(self) -> dict[str, Any]:
        """All that is in force, whoever set it, as JSON values without fractions."""
        from PIL import __version__ as pillow

        in_force: dict[str, Any] = _plain(self._processor.to_dict())
        return {**in_force, "backend": BACKEND, "pillow": pillow}

    def _process(self, pixel_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        from PIL import Image

        # of an array it would be guessed which axis is that of the colours
        image = Image.fromarray(pixel_HWC)
        given: Mapping[str, Any] = self._processor(images=image, return_tensors="np")
        self.beside |= frozenset(given) - {"pixel_values"}
        values = given.get("pixel_values")
        if not isinstance(values, np.ndarray) or values.ndim != 4 or len(values) != 1:
            found = getattr(values, "shape", type(values).__name__)
            raise Unusable(f"its image processor makes {found} of one picture")
        return np.ascontiguousarray(values[0], dtype=np.float32)


def _plain(value: Any) -> Any:
    """Without fractions, which stand as text, and without what is not set."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    return repr(float(value)) if isinstance(value, float) else str(value)


class _VisionForward(Forward):
    """Pictures of one shape; patches are pooled, and nothing else."""

    layout = range(
        0
    )  # positions of the patches, measured; the others are class tokens, registers

    def batch(self, items: Sequence[Any]) -> Batch:
        """Pictures as (B, C, H, W) in the arithmetic of the model."""
        pixel_BCHW = self.to_device(np.stack(list(items)))
        patches = torch.full((len(pixel_BCHW),), len(self.layout))
        inputs = {"pixel_values": pixel_BCHW.to(self.dtype)}
        return Batch(inputs=inputs, length_B=patches.to(self.device))

    def _pool_layer(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        start, stop = self.layout.start, self.layout.stop
        if x_BTD.shape[1] < stop:
            raise Unusable(
                f"a layer has {x_BTD.shape[1]} positions, of {stop} or more before it"
            )
        here_B = batch.length_B.to(x_BTD.device)
        patches_BPD, before_BTD = x_BTD[:, start:stop], x_BTD[:, :start]
        return {
            name: pool(before_BTD, torch.full_like(here_B, start))
            if pool.summary
            else pool(patches_BPD, here_B)
            for name, pool in self.poolings.items()
        }


@torch.inference_mode()
def find_layout(forward: Forward, shape: tuple[int, ...], dtype: str) -> range:
    """Positions whose state before the first layer depends on the picture, in one run.

    A class token or a register is the same for every picture there. Of a picture with another upper
    left corner only patches at the beginning may move, with another lower right corner only patches
    at the end: what moves with both has seen the whole picture, and is no patch.
    """
    one, other = np.random.default_rng(0).standard_normal((2, *shape), dtype=np.float32)
    upper, lower = one.copy(), one.copy()
    height, width = (max(1, side // CORNER) for side in shape[1:])
    upper[:, :height, :width] = other[:, :height, :width]
    lower[:, -height:, -width:] = other[:, -height:, -width:]
    batch = forward.batch([one, other, upper, lower])
    states = getattr(
        forward.run(batch, output_hidden_states=True), "hidden_states", None
    )
    first = states[0] if isinstance(states, tuple | list) and states else None
    if not isinstance(first, Tensor) or first.ndim != 3 or len(first) != 4:
        raise Unusable("the model returns no state for every patch of a picture")
    x_BTD = first.float()
    moved = []
    for shift_T in (x_BTD[1:] - x_BTD[:1]).norm(dim=-1).cpu().numpy():
        most = float(shift_T.max())
        if not 0 < most < np.inf:
            raise Unusable("another picture gives the same states there, or no finite")
        moved.append(np.flatnonzero(shift_T > ROUNDING[dtype] * most))
    everything, by_upper, by_lower = moved
    start, stop = int(everything[0]), int(everything[-1]) + 1
    if len(everything) != stop - start:
        raise Unusable(
            "there are positions between the patches that do not depend on the picture"
        )
    if len(everything) > 1 and np.intersect1d(by_upper, by_lower).size:
        raise Unusable(
            "states before the first layer depend on the whole picture, or on random numbers, as "
            "those of a masked autoencoder do (save ViTMAEModel as ViTModel)"
        )
    if by_upper[0] != start or by_lower[-1] != stop - 1 or by_upper[-1] > by_lower[0]:
        raise Unusable("the patches do not stand in the order of the picture")
    return range(start, stop)
