"""Image encoders of the transformers library: BEiT, ViT, DINOv2, CLIP, SigLIP, ...

Shape suffixes: B pictures of a batch, T positions, C channels, H height, W width, D
hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from gaam_cache.common.errors import DataError
from gaam_cache.encoders._fixed_rows import FixedPicture, fixed_pictures
from gaam_cache.encoders._forward import Batch, Forward, Unusable, error_summary
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import ProbeRows
from gaam_cache.encoders._weights import skeleton
from gaam_cache.encoders.base import (
    SETTINGS_OF_SOUNDS,
    SETTINGS_OF_TEXTS,
    Inputs,
    LazyItems,
)
from gaam_cache.store.rounding import ROUNDING

POOLED = (
    "patches, not class token, distillation token or registers (first: the class token)"
)
"""The pooled positions, as the fingerprint and ``gaam inspect`` describe them."""
NUM_PROBE_PICTURES = 4
"""Number of the probe's pictures."""
BACKEND = "pil"
"""Library that resizes pictures on every machine: torchvision gives other numbers."""
TRIED_SHAPES = ((48, 64), (97, 31), (700, 500))
"""Heights and widths of the pictures on which an image processor is tried."""
CORNER_DIVISOR = 4
"""Sides of a picture, as a multiple of the sides of a changed corner.

With so small corners no patch lies in two of them, unless there is only one patch.
"""


class VisionEncoder(ModelEncoder):
    """An encoder of pictures; of a model of pictures and texts its picture tower.

    The encoder's own image processor brings all pictures to one size, so that no batch
    is padded. ``mean``, ``max`` and ``last`` pool only patches; ``first`` is the class
    token. The positions of the patches and the class token are measured.
    """

    noun: ClassVar[str] = "picture"
    unit: ClassVar[str] = "patches"
    input_names: ClassVar[frozenset[str]] = frozenset({"pixel_values"})
    expected_encoder: ClassVar[str] = "an image encoder and image processor"
    example_encoder: ClassVar[str] = "facebook/dinov2-base"
    position_noun: ClassVar[str] = "patch"
    unused_settings: ClassVar[tuple[str, ...]] = (
        *SETTINGS_OF_TEXTS,
        *SETTINGS_OF_SOUNDS,
        "max_length",
    )
    _processor: _ImageProcessor
    _num_patches: int

    def _read_preprocessor(self) -> None:
        """Load the image processor, and count the patches of its pictures.

        The number of patches is the length of every row, ``max_length``.
        """
        self._processor = _ImageProcessor(self._located.path)
        # a skeleton is the model without weights; its part for pictures runs
        part = self._select_part(skeleton(self._model_config))
        patch_height, patch_width = _patch_sides(part.config)

        # Models drop the pixels at the edge that fill no patch.
        _, height, width = self._processor.shape
        self._num_patches = (height // patch_height) * (width // patch_width)
        self.max_length = self._num_patches

    def _settings(self) -> dict[str, Any]:
        """Which positions are pooled, and the settings of the image processor."""
        return {"pooled": POOLED, "image_processor": self._processor.settings()}

    def reference_rows(self) -> Sequence[FixedPicture]:
        """Two small pictures."""
        return fixed_pictures()

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Describe the pictures, which are decoded, resized and normalised at access.

        All of them have the same number of patches, and none is cut.
        """
        return Inputs(
            items=LazyItems(rows, self._processor),
            lengths=np.full(len(rows), self._num_patches),
            truncated=[False] * len(rows),
        )

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """Describe a picture by its patches and pixels."""
        _, height, width = self._processor.shape
        return f"{super().describe_row(inputs, row)} of {width} x {height} pixels"

    def _select_part(self, model: nn.Module) -> Any:
        """Select the outermost part that takes pictures and no token ids.

        A model of pictures and texts has such a part inside; a model of pictures is
        this part itself.
        """
        parts_by_depth: dict[int, list[nn.Module]] = {}
        for name, module in model.named_modules():
            arguments = inspect.signature(module.forward).parameters
            reads_pictures = "pixel_values" in arguments
            reads_texts = "input_ids" in arguments
            if hasattr(module, "config") and reads_pictures and not reads_texts:
                depth = len(name.split(".")) if name else 0
                parts_by_depth.setdefault(depth, []).append(module)

        # Two such parts at one depth: nobody can say which one is meant.
        outermost: list[nn.Module] = []
        if parts_by_depth:
            outermost = parts_by_depth[min(parts_by_depth)]
        if len(outermost) != 1:
            raise Unusable("it has no part that reads pictures alone")
        return outermost[0]

    def _make_forward(
        self,
        part: nn.Module,
        model: nn.Module,  # noqa: ARG002
    ) -> _VisionForward:
        """Build the forward of the model, and measure where it has the patches."""
        forward = _VisionForward(part, device=self.device, pooling=self._config.pool)
        forward.takes_mask = False  # a picture has no padding
        self._check_processor(forward.argument_names)
        forward.layout = find_layout(forward, self._processor.shape, self.dtype)
        self._check_layout(forward)
        return forward

    def _check_processor(self, arguments: frozenset[str]) -> None:
        """Refuse an image processor with outputs that the model needs beside a picture.

        gaam passes only the picture on. An output is needed if it is an argument of the
        model, or a mask that says which pixels count.

        Args:
            arguments: names of the model's arguments.
        """
        needed = [
            name
            for name in self._processor.extra_outputs
            if name in arguments or "mask" in name
        ]
        if needed:
            raise Unusable(
                "its image processor gives more than a picture: "
                f"{', '.join(sorted(needed))}"
            )

    def _check_layout(self, forward: _VisionForward) -> None:
        """Refuse a model whose positions are not as expected.

        Exactly one position must depend on each patch. If a pooling reads the class
        token, there must be a position before the patches.

        Args:
            forward: the model; ``layout`` is the range of positions that depend on the
                picture.
        """
        num_positions = len(forward.layout)
        if num_positions != self._num_patches:
            raise Unusable(
                f"{num_positions} positions depend on the picture, of "
                f"{self._num_patches} patches"
            )
        # A pooling with ``summary`` reads the class token.
        summaries = [name for name, pool in forward.poolings.items() if pool.summary]
        num_before_patches = forward.layout.start
        if summaries and num_before_patches == 0:
            raise Unusable(
                f"it has no class token, which --pool {','.join(summaries)} needs"
            )

    def _make_probe_rows(
        self,
        part: nn.Module,  # noqa: ARG002
        probe_length: int,  # noqa: ARG002
    ) -> ProbeRows:
        """Make pictures of noise, in the shape that the image processor returns."""
        shape = (NUM_PROBE_PICTURES, *self._processor.shape)
        pictures = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
        # The probe takes ``len`` as the length of a row. Of a picture it is the number
        # of channels: all pictures are equally long, and share one batch.
        return ProbeRows(sets=[list(pictures)], short_length=len(pictures[0]))


def _patch_sides(model_config: transformers.PretrainedConfig) -> tuple[int, int]:
    """Read the height and the width of a patch in pixels from a configuration.

    ``patch_size`` may be one number, for square patches.
    """
    size = getattr(model_config, "patch_size", None)
    sides: list[Any] = [size, size]
    if isinstance(size, list | tuple):
        sides = list(size)
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise Unusable(
            f"its configuration has the patch_size {size}: it must be one number or two"
        )
    height, width = sides
    return height, width


class _Picture(Protocol):
    """A picture of a data set, or one of the fixed pictures."""

    @property
    def where(self) -> str:
        """Where the picture lies, for messages."""

    def pixels(self) -> NDArray[np.uint8]:
        """Decode the picture: (H, W, 3), RGB."""


class _ImageProcessor:
    """Turns pictures of any size into arrays of one shape.

    It runs the encoder's own image processor, with Pillow.
    """

    def __init__(self, folder: Path) -> None:
        """Load the image processor of a folder, and try it on pictures of some sizes.

        One that brings them to different sizes is refused.
        """
        self._processor = _load_processor(folder)
        self.extra_outputs: frozenset[str] = frozenset()
        """Names of the outputs that the processor returns beside the picture."""

        # The model's number of positions is fixed, so the size of pictures must be.
        shapes = {
            self._process(np.zeros((*shape, 3), np.uint8)).shape
            for shape in TRIED_SHAPES
        }
        if len(shapes) > 1:
            raise Unusable(
                "its image processor brings pictures to different sizes: "
                f"{sorted(shapes)}; give 'size' a height and a width in a copy of its "
                "preprocessor_config.json"
            )
        [self.shape] = shapes  # (C, H, W) of every result

    def __call__(self, picture: _Picture) -> NDArray[np.float32]:
        """Decode, resize and normalise one picture: (C, H, W).

        A picture that the image processor cannot read is refused by a ``DataError``.
        """
        pixel_HWC = picture.pixels()
        try:
            x_CHW = self._process(pixel_HWC)
            # This error becomes the reason in the message below.
            if x_CHW.shape != self.shape:
                raise Unusable(f"it makes {x_CHW.shape} of it")
            return x_CHW
        except MemoryError:
            raise
        # An image processor is code of other projects, and may raise any error.
        except Exception as error:
            height, width = pixel_HWC.shape[:2]
            raise DataError(
                "the encoder's image processor cannot read a picture",
                expected=f"an array of {self.shape} from one of {width} x {height} "
                "pixels",
                found=error_summary(error),
                where=picture.where,
                hint="remove the row, or choose another encoder",
            ) from error

    def settings(self) -> dict[str, Any]:
        """All settings in force, and the version of Pillow, as JSON values.

        The settings come from the encoder's files and from defaults of transformers.
        Fractions are written as text.
        """
        # Pillow is an extra, and its version decides how pictures are resized.
        from PIL import __version__ as pillow

        settings: dict[str, Any] = _without_fractions(self._processor.to_dict())
        settings["backend"] = BACKEND
        settings["pillow"] = pillow
        return settings

    def _process(self, pixel_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Resize and normalise one picture: (C, H, W).

        The names of all outputs but the picture are added to ``extra_outputs``.
        """
        from PIL import Image

        # In an array, the processor would have to guess which axis holds the colours.
        image = Image.fromarray(pixel_HWC)
        output: Mapping[str, Any] = self._processor(images=image, return_tensors="np")
        self.extra_outputs |= frozenset(output) - {"pixel_values"}
        values = output.get("pixel_values")
        # One picture must become a batch of one picture.
        if not isinstance(values, np.ndarray) or values.ndim != 4 or len(values) != 1:
            result = getattr(values, "shape", type(values).__name__)
            raise Unusable(f"its image processor makes {result} of one picture")
        return np.ascontiguousarray(values[0], dtype=np.float32)


def _load_processor(folder: Path) -> Any:
    """Load an encoder's image processor, which must run on Pillow."""
    try:
        auto_processor: Any = transformers.AutoImageProcessor
        processor = auto_processor.from_pretrained(
            folder, backend=BACKEND, local_files_only=True, trust_remote_code=False
        )
        description = type(processor).__name__
    # If a processor does not run on Pillow, transformers looks for other backends, and
    # may miss their packages. The check below then refuses the processor. The message
    # begins with "X requires the Y library but it was not found": its first half is
    # enough.
    except ImportError as error:
        processor = None
        description = str(error).strip().partition(" but ")[0]
    if getattr(processor, "backend", None) != BACKEND:
        raise Unusable(
            "its image processor does not run on Pillow, as ViTImageProcessorPil does: "
            f"{description}"
        )
    return processor


def _without_fractions(value: Any) -> Any:
    """Turn a setting into JSON values without fractions.

    Fractions become text, so that the fingerprint does not depend on how JSON writes
    them. Entries of None are left out. Values that JSON does not have, such as members
    of an enumeration, become text or whole numbers.
    """
    if isinstance(value, Mapping):
        return {
            str(key): _without_fractions(setting)
            for key, setting in value.items()
            if setting is not None
        }
    if isinstance(value, list | tuple):
        return [_without_fractions(item) for item in value]
    # A truth value is an int too, and must not become a number.
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return repr(float(value))
    return str(value)


class _VisionForward(Forward):
    """Runs pictures of one shape through a model, and pools their patches."""

    layout = range(0)
    """Measured positions of the patches; the others are class tokens or registers."""

    def batch(self, items: Sequence[Any]) -> Batch:
        """Pictures as (B, C, H, W) in the arithmetic of the model."""
        pixel_BCHW = self.to_device(np.stack(list(items)))
        num_patches_B = torch.full((len(pixel_BCHW),), len(self.layout))
        return Batch(
            inputs={"pixel_values": pixel_BCHW.to(self.dtype)},
            length_B=num_patches_B.to(self.device),
        )

    def _pool_layer(self, x_BTD: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Pool the states of one layer: (B, D) for every pooling.

        Before the patches of a picture, a model may have positions that summarise it,
        such as a class token. A pooling with ``summary`` reads these positions. Any
        other pooling reads the patches.

        Args:
            x_BTD: the states of the layer.
            batch: its rows; ``length_B`` is the number of patches of each.
        """
        start = self.layout.start
        stop = self.layout.stop
        if x_BTD.shape[1] < stop:
            raise Unusable(
                f"a layer has {x_BTD.shape[1]} positions, of {stop} or more before it"
            )

        num_patches_B = batch.length_B.to(x_BTD.device)
        num_before_B = torch.full_like(num_patches_B, start)
        pooled = {}
        for name, pool in self.poolings.items():
            if pool.summary:
                pooled[name] = pool(x_BTD[:, :start], num_before_B)
            else:
                pooled[name] = pool(x_BTD[:, start:stop], num_patches_B)
        return pooled


@torch.inference_mode()
def find_layout(forward: Forward, shape: tuple[int, ...], dtype: str) -> range:
    """Find the positions of the patches, in one run of the model.

    The model reads four pictures: a first one, another one, the first one with a
    changed upper left corner, and the first one with a changed lower right corner.

    States before the first layer are compared with those of the first picture. At a
    class token or a register, they are the same for every picture. At a patch, they
    shift with another picture. A changed upper left corner may shift only patches at
    the beginning, and a changed lower right corner only patches at the end. A position
    that shifts with both has seen the whole picture, and is no patch.

    Args:
        forward: the model.
        shape: shape of a picture, (C, H, W).
        dtype: arithmetic of the model.

    Returns:
        The positions of the patches.

    Raises:
        Unusable: the patches are not one run of positions in the order of the picture.
    """
    first_TD, *others_TD = _states_before_layers(forward, _pictures_with_changes(shape))
    # Positions that shift with another picture, and with either changed corner.
    shifted_by_picture, shifted_by_upper, shifted_by_lower = (
        _shifted_positions(other_TD, first_TD, dtype) for other_TD in others_TD
    )

    # The patches must be one run of positions.
    start = int(shifted_by_picture[0])
    stop = int(shifted_by_picture[-1]) + 1
    if len(shifted_by_picture) != stop - start:
        raise Unusable(
            "there are positions between the patches that do not depend on the picture"
        )
    # A single patch holds both corners; of several patches, none does. A masked
    # autoencoder shuffles its patches at random: any position may shift with both.
    has_several_patches = len(shifted_by_picture) > 1
    shifted_by_both = np.intersect1d(shifted_by_upper, shifted_by_lower)
    if has_several_patches and shifted_by_both.size:
        raise Unusable(
            "states before the first layer depend on the whole picture, or on random "
            "numbers, as those of a masked autoencoder do (save ViTMAEModel as "
            "ViTModel)"
        )
    # The first patch holds the upper left corner, and the last one the lower right.
    is_upper_first = shifted_by_upper[0] == start
    is_lower_last = shifted_by_lower[-1] == stop - 1
    is_upper_before_lower = shifted_by_upper[-1] <= shifted_by_lower[0]
    if not (is_upper_first and is_lower_last and is_upper_before_lower):
        raise Unusable("the patches do not stand in the order of the picture")
    return range(start, stop)


def _pictures_with_changes(shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Make a picture, another one, and two copies of the first with a changed corner.

    The first copy has the upper left corner of the other picture, and the second copy
    its lower right corner. All are of the shape (C, H, W).
    """
    generator = np.random.default_rng(0)
    picture, second_picture = generator.standard_normal((2, *shape), dtype=np.float32)
    height, width = (max(1, side // CORNER_DIVISOR) for side in shape[1:])
    upper_left = np.s_[:, :height, :width]
    lower_right = np.s_[:, -height:, -width:]

    with_other_upper_left = picture.copy()
    with_other_upper_left[upper_left] = second_picture[upper_left]
    with_other_lower_right = picture.copy()
    with_other_lower_right[lower_right] = second_picture[lower_right]
    return [picture, second_picture, with_other_upper_left, with_other_lower_right]


def _states_before_layers(
    forward: Forward, pictures: Sequence[NDArray[np.float32]]
) -> Tensor:
    """The input of the model's first layer, (B, T, D), for pictures in one batch."""
    output = forward.run(forward.batch(pictures), output_hidden_states=True)
    states = getattr(output, "hidden_states", None)
    # The first of the hidden states is the input of the first layer.
    x_BTD = None
    if isinstance(states, tuple | list) and states:
        x_BTD = states[0]
    if not isinstance(x_BTD, Tensor) or x_BTD.ndim != 3 or len(x_BTD) != len(pictures):
        raise Unusable("the model returns no state for every patch of a picture")
    return x_BTD.float()


def _shifted_positions(x_TD: Tensor, other_TD: Tensor, dtype: str) -> NDArray[np.int64]:
    """Find the positions where the states of two pictures differ by more than rounding.

    Args:
        x_TD: states of one picture.
        other_TD: states of the other one.
        dtype: arithmetic of the model. It says how far rounding shifts a state, as a
            part of the largest shift.

    Returns:
        Indices of the positions, in ascending order; at least one.
    """
    shift_T = (x_TD - other_TD).norm(dim=-1).cpu().numpy()
    largest = float(shift_T.max())
    if not 0 < largest < np.inf:
        raise Unusable(
            "before its first layer, another picture gives the same states, or states "
            "that are not finite"
        )
    return np.flatnonzero(shift_T > ROUNDING[dtype] * largest)
