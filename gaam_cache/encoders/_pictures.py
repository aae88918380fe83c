"""Pictures as an encoder takes them, and which of its positions are patches of them.

B batch, T positions, C channels, H height, W width, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.encoders._deviation import ROUNDING
from gaam_cache.encoders._forward import Forward, Unusable
from gaam_cache.errors import DataError

BACKEND = "pil"
"""Pictures are resized by Pillow on every machine: torchvision, which transformers would take where
it is installed, gives other numbers."""
SHAPES = ((48, 64), (97, 31), (700, 500))
"""Heights and widths of pictures that an image processor is tried on."""
CORNER = 4
"""The share of a side, as its divisor, that a changed corner has. No patch is in two corners then,
unless there is one patch in all."""


class ImageProcessor:
    """Pictures of any shape in, arrays of one shape out, by the encoder's own image processor."""

    def __init__(self, folder: Path) -> None:
        try:
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(
                folder, backend=BACKEND, local_files_only=True, trust_remote_code=False
            )
            found = type(self._processor).__name__
        except ImportError as error:  # where there is none on Pillow, others are looked for
            self._processor, found = None, str(error).strip().partition(" but ")[0]
        if getattr(self._processor, "backend", None) != BACKEND:
            raise Unusable(
                f"its image processor does not run on Pillow: {found}; save one there that does "
                "the same on Pillow, such as ViTImageProcessorPil"
            )
        shapes = {self._process(np.zeros((*shape, 3), np.uint8)).shape for shape in SHAPES}
        if len(shapes) > 1:
            raise Unusable(
                f"its image processor brings pictures to other sizes: {sorted(shapes)}; set 'size' "
                "in a copy of its preprocessor_config.json to a height and a width"
            )
        [self.shape] = shapes
        """(C, H, W) of what it gives."""

    def __call__(self, row: Any) -> NDArray[np.float32]:
        """One picture, resized and normalised: (C, H, W)."""
        pixel_HWC: NDArray[np.uint8] = row.pixels()
        try:
            picture = self._process(pixel_HWC)
            if picture.shape == self.shape:
                return picture
            found = f"one of {picture.shape}"
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 processors of others raise what they like
            found = f"{type(error).__name__}: {error}"
        height, width = pixel_HWC.shape[:2]
        raise DataError(
            "the encoder's image processor cannot read a picture",
            expected=f"an array of {self.shape} of one of {width} x {height} pixels",
            found=found,
            where=row.blob.where,
            hint="remove the row, or choose another encoder",
        )

    def settings(self) -> dict[str, Any]:
        """All that is in force, whoever set it, as JSON values without fractions."""
        from PIL import __version__ as pillow

        in_force: dict[str, Any] = _plain(self._processor.to_dict())
        return {**in_force, "backend": BACKEND, "pillow": pillow}

    def gives_beside(self) -> frozenset[str]:
        """What else it gives beside the picture itself."""
        return frozenset(self._raw(np.zeros((*SHAPES[0], 3), np.uint8))) - {"pixel_values"}

    def _process(self, pixel_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        values = self._raw(pixel_HWC).get("pixel_values")
        if not isinstance(values, np.ndarray) or values.ndim != 4 or len(values) != 1:
            found = getattr(values, "shape", type(values).__name__)
            raise Unusable(f"its image processor makes {found} of one picture")
        picture: NDArray[np.float32] = np.ascontiguousarray(values[0], dtype=np.float32)
        return picture

    def _raw(self, pixel_HWC: NDArray[np.uint8]) -> Mapping[str, Any]:
        from PIL import Image

        # of an array it would be guessed which axis is that of the colours
        image = Image.fromarray(pixel_HWC)
        given: Mapping[str, Any] = self._processor(images=image, return_tensors="np")
        return given


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


class Layout(NamedTuple):
    """Positions of the patches: ``start`` to ``stop``. The others are class tokens, registers."""

    start: int
    stop: int


@torch.inference_mode()
def find_layout(forward: Forward, shape: tuple[int, ...], dtype: str) -> Layout:
    """Positions whose state before the first layer depends on the picture, in one run.

    Nothing is read off a name. A class token, a distillation token or a register is the same for
    every picture there; a patch is not. Of a picture with another upper left corner only patches
    at the beginning may move, with another lower right corner only patches at the end: what moves
    with both has seen the whole picture, and is no patch.
    """
    some_BCHW = _pictures(shape)
    batch = forward.batch(list(some_BCHW))
    states = getattr(forward.run(batch, None, output_hidden_states=True), "hidden_states", None)
    first = states[0] if isinstance(states, tuple | list) and states else None
    if not isinstance(first, Tensor) or first.ndim != 3 or len(first) != len(some_BCHW):
        raise Unusable("the model returns no state for every patch of a picture")
    x_BTD = first.float()
    shift_BT = (x_BTD[1:] - x_BTD[:1]).norm(dim=-1).cpu().numpy()
    everything, upper, lower = (_moved(shift_T, dtype) for shift_T in shift_BT)
    start, stop = int(everything[0]), int(everything[-1]) + 1
    if len(everything) != stop - start:
        raise Unusable("there are positions between the patches that do not depend on the picture")
    if len(everything) == 1:
        return Layout(start, stop)
    if np.intersect1d(upper, lower).size:
        raise Unusable(
            "states before the first layer depend on the whole picture, or on random numbers, as "
            "those of a masked autoencoder do (ViTMAEModel hides patches; the same weights saved "
            "as ViTModel do not)"
        )
    if upper[0] != start or lower[-1] != stop - 1 or upper[-1] > lower[0]:
        raise Unusable("the patches do not stand in the order of the picture")
    return Layout(start, stop)


def _moved(shift_T: NDArray[np.float32], dtype: str) -> NDArray[np.int64]:
    most = float(shift_T.max())
    if not 0 < most < np.inf:
        raise Unusable("another picture gives the same states before the first layer, or no finite")
    return np.flatnonzero(shift_T > ROUNDING[dtype] * most)


def _pictures(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One, all of it another, its upper left corner another, its lower right one: (4, C, H, W)."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, *shape), dtype=np.float32)
    upper, lower = one.copy(), one.copy()
    height, width = (max(1, side // CORNER) for side in shape[1:])
    upper[:, :height, :width] = other[:, :height, :width]
    lower[:, -height:, -width:] = other[:, -height:, -width:]
    return np.stack([one, other, upper, lower])
