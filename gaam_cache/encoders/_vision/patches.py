"""How many patches a picture has.

C channels, H height, W width.
"""

from __future__ import annotations

from typing import Any

from gaam_cache.errors import ConfigError


def count_patches(part_config: Any, shape: tuple[int, ...], name: str) -> int:
    """How many patches a picture has by the configuration; what does not fill one is left out.

    Args:
        part_config: of what reads pictures.
        shape: (C, H, W) of a picture.
        name: what the user calls the encoder.

    Raises:
        ConfigError: the configuration names no size of patches, or one larger than a picture.
    """
    size = getattr(part_config, "patch_size", None)
    sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size, size]
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ConfigError(
            f"the configuration of '{name}' does not say how large its patches are",
            expected="patch_size: a number of pixels, or two",
            found=f"patch_size: {size}",
            hint="choose an encoder that parts pictures into patches of one size",
        )
    patches = (shape[1] // sides[0]) * (shape[2] // sides[1])
    if not patches:
        raise ConfigError(
            f"the pictures of '{name}' are smaller than its patches",
            expected=f"{sides[0]} x {sides[1]} pixels or more, as its patch_size has it",
            found=f"{shape[1]} x {shape[2]}, as its image processor makes them",
        )
    return patches
