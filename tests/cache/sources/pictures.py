"""Pictures of every format and mode, made on the fly."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH = 9, 13


class Kind(NamedTuple):
    """A way to save a picture."""

    format: str
    mode: str
    options: dict[str, Any] = {}  # noqa: RUF012 nobody writes to it
    exact: bool = True

    @property
    def name(self) -> str:
        return "-".join([self.format, self.mode, *map(str, self.options.values())])


KINDS = [
    *(Kind("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    Kind("PNG", "P", {"bits": 4}),
    Kind("PNG", "RGB", {"compress_level": 0}),
    *(Kind("JPEG", mode, exact=False) for mode in ("L", "RGB", "CMYK")),
    Kind("JPEG", "RGB", {"progressive": True}, exact=False),
    Kind("GIF", "P"),
    Kind("GIF", "L"),
    Kind("WEBP", "RGB", {"lossless": True}),
    Kind("WEBP", "RGBA", {"lossless": True, "exact": True}),
    Kind("WEBP", "RGB", exact=False),
    *(Kind("BMP", mode) for mode in ("1", "L", "P", "RGB")),
    *(Kind("TIFF", mode) for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16")),
    *(Kind("TIFF", "RGB", {"compression": c}) for c in ("tiff_lzw", "tiff_deflate", "packbits")),
    *(Kind("PPM", mode) for mode in ("1", "L", "RGB", "I;16")),
]


def drawn(mode: str, seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """A picture of noise over a slope, so that lossy formats keep its shape."""
    rng = np.random.default_rng(seed)
    width, height = size
    slope = np.linspace(0, 200, width)[None, :, None] + np.zeros((height, 1, 4))
    array = (slope + rng.integers(0, 40, (height, width, 4))).astype(np.uint8)
    if mode == "I;16":
        return Image.fromarray((array[..., 0].astype(np.uint16) << 8) + array[..., 1])
    if mode == "P":
        return Image.fromarray(array[..., :3]).quantize(16)
    if mode in ("1", "L"):
        return Image.fromarray(array[..., 0]).convert(mode)
    if mode == "LA":
        return Image.merge("LA", [Image.fromarray(array[..., i]) for i in (0, 3)])
    return Image.fromarray(np.ascontiguousarray(array[..., : len(mode)]), mode)


def saved(kind: Kind, picture: Image.Image | None = None) -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    (picture or drawn(kind.mode)).save(file, kind.format, **kind.options)
    return file.getvalue()


def expected(mode: str) -> NDArray[np.uint8]:
    """What must come of ``drawn``: brute force, without Pillow's conversion where there is one."""
    picture = drawn(mode)
    array = np.asarray(picture)
    if mode == "I;16":
        array = (array // 256).astype(np.uint8)
    if mode == "1":
        array = array.astype(np.uint8) * 255
    if mode == "P":
        palette = np.array(picture.getpalette(), np.uint8).reshape(-1, 3)
        return palette[array]
    if mode == "CMYK":
        ink = array.astype(int)
        light = 255 - ink[..., 3:]
        return np.clip(light - (ink[..., :3] * light * 2 + 255) // 510, 0, 255).astype(np.uint8)
    if array.ndim == 2:
        return np.stack([array] * 3, -1)
    colour = array[..., :-1] if mode in ("LA", "RGBA") else array
    if mode in ("LA", "RGBA"):  # on white
        alpha = array[..., -1:].astype(int)
        colour = ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return np.concatenate([colour] * 3, -1) if colour.shape[-1] == 1 else colour
