"""Pictures for tests: noise of many shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHAPES = [
    *[(32, 32), (1, 1), (3, 50), (4, 7), (50, 3), (200, 31), (31, 200), (33, 32)],
    *[(64, 64), (1, 9), (9, 1), (3, 3), (97, 131), (240, 320), (36, 36), (35, 35)],
]
"""Heights and widths; 1, 3 and 4 are numbers of colours too."""


@dataclass(frozen=True)
class Drawn:
    """An item as the source of pictures gives it."""

    array: NDArray[np.uint8]

    @property
    def height(self) -> int:
        return self.array.shape[0]

    @property
    def width(self) -> int:
        return self.array.shape[1]

    @property
    def where(self) -> str:
        return f"a picture of {self.width} x {self.height}"

    def pixels(self) -> NDArray[np.uint8]:
        return self.array


def noise(seed: int = 0) -> list[Drawn]:
    """Pictures of all shapes: noise and, in turn, something smooth.

    Resizing leaves something of a smooth one.
    """
    rng = np.random.default_rng(seed)
    pictures: list[Drawn] = []
    for number, (height, width) in enumerate(SHAPES):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((width, height)))
        rough = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        pictures.append(Drawn(smooth if number % 2 else rough))
    return pictures


def write_pictures(folder: Path, rows: dict[str, int]) -> Path:
    """Noise of all shapes as PNG, of two classes in turn."""
    for seed, (split, count) in enumerate(rows.items()):
        for number, drawn in enumerate(noise(seed)[:count]):
            path = folder / split / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(drawn.array).save(path)
    return folder
