"""States as they were given -> states as they are stored: finite, and no digits lost.

N rows, L layers, D features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import NumericsError
from gaam_cache.format.finite import EXPONENT_BITS, LOST, first_not_finite
from gaam_cache.format.receipt import NUMPY_DTYPES

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
"""Largest finite number of every storage type."""
READABLE = ("float16", "bfloat16", "float32", "float64")
"""Types of states, from narrow to wide."""


def default_storage(dtypes: set[str]) -> str:
    """The type in which nothing is lost, or float32, the widest there is."""
    return next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= LARGEST.keys() else "float32"


def stored(values: NDArray[Any], dtype: str, storage_dtype: str) -> NDArray[Any]:
    """Numbers in the storage type, rounded to nearest, ties to even; bfloat16 as its bits.

    What is too large becomes infinite: see ``first_unstorable``.

    Args:
        values: any shape; bfloat16 as its bits in uint16.
        dtype: of the values.
        storage_dtype: float16, float32 or bfloat16.

    Numerics:
        float64 becomes bfloat16 by way of float32, as in torch; everything else is rounded once.
    """
    if dtype == storage_dtype:
        return values.astype(NUMPY_DTYPES[storage_dtype], copy=False)
    if dtype == "bfloat16":
        values = as_float32(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if storage_dtype != "bfloat16":
            return values.astype(NUMPY_DTYPES[storage_dtype])
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    even = bits + 0x7FFF + ((bits >> 16) & 1)
    mask = EXPONENT_BITS["float32"]
    kept = np.where((bits & mask) == mask, bits, even)  # a NaN must not be carried into zero
    return (kept >> 16).astype(NUMPY_DTYPES["bfloat16"])


def as_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The equal numbers of bfloat16 that came as its bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def check_finite(
    given: NDArray[Any],
    kept: NDArray[Any],
    dtype: str,
    storage_dtype: str,
    *,
    row: int,
    layer: int,
    where: str,
) -> None:
    """Refuse what is not finite, and what the storage type cannot hold.

    Args:
        given: (N, L, D) as it was given.
        kept: the same as it would be stored.
        dtype: of what was given.
        storage_dtype: of what would be stored.
        row: number of the first row in its split, from 0.
        layer: number of the first layer, from 0.
        where: of which array.

    Raises:
        NumericsError: the first such number, by row, layer and feature.
    """
    if (bad := first_not_finite(kept, storage_dtype)) is not None:
        value = float(as_float32(given[bad]) if dtype == "bfloat16" else given[bad])
        raise _unstorable(bad, value, storage_dtype, row, layer, where)


def count_digits(
    given: NDArray[Any], kept: NDArray[Any], dtype: str, storage_dtype: str
) -> NDArray[np.int64]:
    """(2, L): how many numbers lost their digits when they were stored, how many are not 0.

    Looks at those near 0 alone: of what is stored as K steps of the type, half a step is more than
    ``LOST`` where K is at most 50.

    Args:
        given: (N, L, D) as it was given.
        kept: the same as it is stored.
        dtype: of what was given.
        storage_dtype: of what is stored.
    """
    steps = kept.view(f"<u{kept.dtype.itemsize}")
    sign = steps.dtype.type(1 << (8 * kept.dtype.itemsize - 1))
    near = np.nonzero((steps & ~sign) <= int(0.5 / LOST))
    exact = as_float32(given[near]) if dtype == "bfloat16" else given[near]
    rounded = as_float32(kept[near]) if storage_dtype == "bfloat16" else kept[near]
    lost = near[1][np.abs(rounded - exact) > LOST * np.abs(exact)]
    zero_L = np.bincount(near[1][exact == 0], minlength=kept.shape[1])
    nonzero_L = len(kept) * kept.shape[2] - zero_L
    return np.stack([np.bincount(lost, minlength=kept.shape[1]), nonzero_L])


def _unstorable(
    bad: tuple[int, ...], value: float, storage_dtype: str, row: int, layer: int, where: str
) -> NumericsError:
    overflow = bool(np.isfinite(value))
    place = f"{where}, row {row + bad[0] + 1}, layer {layer + bad[1] + 1}, feature {bad[2]}"
    return NumericsError(
        f"a state of layer {layer + bad[1] + 1} cannot be stored as {storage_dtype}"
        if overflow
        else f"a state of layer {layer + bad[1] + 1} is {value}",
        expected=f"finite values up to {LARGEST[storage_dtype]:g}",
        found=f"{value:g} in feature {bad[2]}",
        where=place,
        hint=("--storage-dtype bfloat16 or float32" if storage_dtype == "float16" else None)
        if overflow
        else "look at the row: whoever made it computed no number there",
    )
