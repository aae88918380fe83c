"""What a storage type cannot hold: a number that is not finite, a layer whose digits are lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import NumericsError

EXPONENT_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
"""Exponent masks; a number is inf or NaN exactly when all these bits are set."""
CHUNK_ROWS = 64
LOST = 0.01
"""A number that rounding moves by more than this share of itself has lost its digits."""
MOST_LOST = 0.01
"""Share of the numbers of a layer, those that are 0 left out, that may have lost theirs."""


def first_not_finite(array: NDArray[Any], dtype: str) -> tuple[int, ...] | None:
    """Index of the first inf or NaN in C order, or None.

    By exponent bits, several times faster than ``np.isfinite``.

    Args:
        array: any shape; bfloat16 as its bits in uint16.
        dtype: 'float16', 'bfloat16' or 'float32'.
    """
    mask = EXPONENT_BITS[dtype]
    bits = array.view(f"<u{array.dtype.itemsize}")
    for start in range(0, len(bits), CHUNK_ROWS):
        chunk = bits[start : start + CHUNK_ROWS] & bits.dtype.type(mask)
        if chunk.max(initial=0) == mask:
            first = np.unravel_index(int((chunk == mask).argmax()), chunk.shape)
            return (start + int(first[0]), *(int(i) for i in first[1:]))
    return None


def check_digits(digits_2L: NDArray[Any], dtype: str, *, first_layer: int, where: str) -> None:
    """Refuse a layer of which too many numbers lost their digits.

    Args:
        digits_2L: of every layer how many numbers lost them, and how many are not 0.
        dtype: the storage type.
        first_layer: number of the first layer.
        where: which rows.

    Raises:
        NumericsError: naming the layer that lost most.
    """
    share_L = digits_2L[0] / np.maximum(digits_2L[1], 1)
    worst = int(share_L.argmax())
    if share_L[worst] > MOST_LOST:
        raise NumericsError(
            f"the states of layer {worst + first_layer} are too small for {dtype}",
            expected=f"at most {MOST_LOST:.0%} of them rounded by more than {LOST:.0%}, or to 0",
            found=f"{share_L[worst]:.1%}",
            where=where,
            hint="--storage-dtype float32 and a new --out",
        )
