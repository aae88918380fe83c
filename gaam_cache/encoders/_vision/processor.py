"""Pictures as an encoder takes them, by its own image processor.

B batch, H height, W width, C channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from numpy.typing import NDArray

from gaam_cache.encoders._located import PROCESSORS
from gaam_cache.errors import ConfigError, DataError

BACKEND = "pil"
"""Pictures are resized by Pillow on every machine: torchvision, which transformers would take where
it is installed, gives other numbers."""
SHAPES = ((48, 64), (97, 31), (700, 500))
"""Heights and widths of pictures that an image processor is tried on."""
MOST_PIXELS = 2**26
"""Of a picture after its shorter side was brought to size and before it is cropped. Pillow and
NumPy hold it three or four times, at three bytes a pixel: measured 0.64 GB for 58 million."""


class ImageProcessor:
    """Pictures of any shape in, arrays of one shape out.

    Args:
        folder: of the encoder.
        name: of the encoder, for messages.

    Raises:
        ConfigError: there is none, it has no form that uses Pillow, or what it gives is not one
            picture of one shape.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        _check_there(folder)
        self._processor = _open(folder, name)
        shapes = [self._process(np.zeros((*shape, 3), np.uint8)).shape for shape in SHAPES]
        if len(set(shapes)) > 1:
            raise self._refused(f"pictures of other sizes: {_listed(shapes)}")
        self.shape: tuple[int, ...] = shapes[0]
        """(C, H, W) of what it gives."""

    def __call__(self, pixel_HWC: NDArray[np.uint8], where: str) -> NDArray[np.float32]:
        """One picture, resized and normalised: (C, H, W).

        Args:
            pixel_HWC: RGB.
            where: it lies, for messages.

        Raises:
            DataError: the processor fails on it, or brings it to another shape than others.
        """
        found = ""
        try:
            picture = self._process(pixel_HWC)
            if picture.shape == self.shape:
                return picture
            found = f"one of {_listed([picture.shape])}"
        except MemoryError:
            raise
        except ConfigError as error:
            found = error.details["found"]
        except Exception as error:  # noqa: BLE001 processors of others raise what they like
            found = f"{type(error).__name__}: {error}"
        height, width = pixel_HWC.shape[:2]
        raise DataError(
            f"the image processor of '{self._name}' cannot read a picture",
            expected=f"an array of {_listed([self.shape])} of one of {width} x {height} pixels",
            found=found,
            where=where,
            hint="remove the row, or choose another encoder",
        )

    def check(self, width: int, height: int, where: str) -> None:
        """Refuse a picture that would take too much memory on its way to its size.

        Raises:
            DataError: it is far longer than wide, or the other way round.
        """
        size = getattr(self._processor, "size", None)
        shortest = _get(size, "shortest_edge")
        if not getattr(self._processor, "do_resize", False) or not shortest:
            return
        longest = math.ceil(shortest * max(width, height) / min(width, height))
        if not _get(size, "longest_edge") and shortest * longest > MOST_PIXELS:
            raise DataError(
                "a picture is too long and thin for the encoder's image processor",
                expected=f"at most {MOST_PIXELS:,} pixels when its shorter side has {shortest}, as "
                "the image processor has it before it crops",
                found=f"{width:,} x {height:,}, which become {shortest} x {longest:,}",
                where=where,
                hint="crop the picture, or remove the row",
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
            raise self._refused(f"{found} of one picture")
        picture: NDArray[np.float32] = np.ascontiguousarray(values[0], dtype=np.float32)
        return picture

    def _raw(self, pixel_HWC: NDArray[np.uint8]) -> Mapping[str, Any]:
        from PIL import Image

        # of an array it would be guessed which axis is that of the colours
        image = Image.fromarray(pixel_HWC)
        given: Mapping[str, Any] = self._processor(images=image, return_tensors="np")
        return given

    def _refused(self, found: str) -> ConfigError:
        return ConfigError(
            f"the image processor of '{self._name}' does not bring pictures to one size",
            expected="one array (channels, height, width) for every picture, of one shape",
            found=found,
            hint="copy the encoder and set 'size' in its preprocessor_config.json to a height and "
            "a width",
        )


def _open(folder: Path, name: str) -> Any:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(
            folder, backend=BACKEND, local_files_only=True, trust_remote_code=False
        )
        found = type(processor).__name__
        if getattr(processor, "backend", None) == BACKEND:
            return processor
    except ImportError as error:  # where there is none on Pillow, others are looked for
        found = str(error).strip().partition(" but ")[0]
    raise ConfigError(
        f"the image processor of '{name}' does not run on Pillow",
        expected="one that transformers has for its backend 'pil': others make other numbers of a "
        "picture",
        found=f"{found}, transformers {transformers.__version__}",
        where=str(folder),
        hint="copy the encoder and save there one that does the same on Pillow, such as "
        "ViTImageProcessorPil(size=..., image_mean=..., image_std=..., resample=...)",
    )


def _check_there(folder: Path) -> None:
    if any((folder / name).is_file() for name in PROCESSORS):
        return
    raise ConfigError(
        f"'{folder}' holds no image processor",
        expected=PROCESSORS[0],
        found="none",
        where=str(folder),
        hint="save the image processor there too: AutoImageProcessor.from_pretrained(...)"
        ".save_pretrained(folder)",
    )


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(" x ".join(map(str, shape)) for shape in sorted(set(shapes)))


def _get(size: Any, name: str) -> int | None:
    found = size.get(name) if hasattr(size, "get") else getattr(size, name, None)
    return found if isinstance(found, int) else None


def _plain(value: Any) -> Any:
    """Without fractions, which stand as text, and without what is not set."""
    if isinstance(value, Mapping):
        return dict(_set(value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    return repr(float(value)) if isinstance(value, float) else str(value)


def _set(values: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if value is not None:
            yield str(key), _plain(value)
