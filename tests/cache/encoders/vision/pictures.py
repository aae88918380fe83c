"""Pictures for tests: noise of many shapes, and things to tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHAPES = [(32, 32), (1, 1), (3, 50), (4, 7), (50, 3), (200, 31), (31, 200), (33, 32), (64, 64),
          (1, 9), (9, 1), (3, 3), (97, 131), (240, 320), (36, 36), (35, 35)]  # fmt: skip
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
    """Of all shapes: noise, and something smooth, which resizing leaves something of."""
    rng = np.random.default_rng(seed)
    found = []
    for height, width in SHAPES:
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((width, height)))
        rough = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        found.append(Drawn(np.asarray(smooth if len(found) % 2 else rough)))
    return found


FIGURES = ("circle", "cross", "square", "triangle")


def _figure(label: str, rng: np.random.Generator, side: int = 64) -> NDArray[np.uint8]:
    """A figure of any size, place and colour on noise."""
    radius = rng.uniform(0.3, 0.45) * side
    x, y = rng.uniform(radius, side - radius, size=2)
    v, u = (np.mgrid[:side, :side] + 0.5 - np.array([y, x])[:, None, None]) / radius
    inside = {
        "circle": u**2 + v**2 < 0.8,
        "square": np.maximum(np.abs(u), np.abs(v)) < 0.7,
        "cross": (np.minimum(np.abs(u), np.abs(v)) < 0.22) & (np.maximum(np.abs(u), np.abs(v)) < 1),
        "triangle": (v > -0.5) & (v < 1 - np.sqrt(3) * np.abs(u)),
    }[label]
    back, front = rng.integers(0, 80, 3), rng.integers(140, 256, 3)
    picture = np.where(inside[..., None], front, back) + rng.normal(0, 10, (side, side, 3))
    return picture.clip(0, 255).astype(np.uint8)


def write_figures(folder: Path, rows: dict[str, int]) -> Path:
    """As PNG and JPEG, one in three of another shape."""
    for seed, (split, count) in enumerate(rows.items()):
        rng = np.random.default_rng(seed)
        for number in range(count):
            label = FIGURES[number % len(FIGURES)]
            path = folder / split / label / f"{number}.{('png', 'jpg')[number % 2]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(_figure(label, rng))
            (image if number % 3 else image.resize((90, 70))).save(path)
    return folder
