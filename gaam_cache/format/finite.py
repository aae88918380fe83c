"""Is every stored number finite? By exponent bits, several times faster than ``np.isfinite``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EXPONENT_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
"""Exponent masks; a number is inf or NaN exactly when all these bits are set."""
CHUNK_ROWS = 64


def first_not_finite(array: NDArray[Any], dtype: str) -> tuple[int, ...] | None:
    """Index of the first inf or NaN in C order, or None.

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
