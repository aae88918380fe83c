"""Numbers and strings as they lie on disk: types, rounding, and what a type cannot hold.

N rows, L layers, D features, W bytes of the longest string.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import NumericsError

# of every storage type of embeddings; bfloat16 lies on disk as raw bits in uint16
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}  # above 0
NUMPY_DTYPES = {
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "int64": "<i8",
    "int32": "<i4",
    "utf8": "|u1",
}
"""How items lie in a file; of texts of a fixed width their bytes, filled with zeros."""
LOST = 0.01  # a number that rounding moves by more than this share of itself has lost its digits
MOST_LOST = 0.01  # of the numbers of a layer, those that are 0 left out


def as_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The equal numbers of bfloat16 that came as its bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def stored(values: NDArray[Any], dtype: str, storage_dtype: str) -> NDArray[Any]:
    """Numbers in the storage type, rounded to nearest, ties to even; bfloat16 as its bits.

    ``dtype`` is that of the values. What is too large becomes infinite: see ``first_not_finite``.
    float64 becomes bfloat16 by way of float32, as in torch; everything else is rounded once.
    """
    if dtype == "bfloat16" != storage_dtype:
        values = as_float32(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == storage_dtype or storage_dtype != "bfloat16":
            return values.astype(NUMPY_DTYPES[storage_dtype], copy=False)
        single = np.ascontiguousarray(values, np.float32)
    import torch

    bits: NDArray[Any] = torch.from_numpy(single).bfloat16().view(torch.int16).numpy()
    return bits.view(NUMPY_DTYPES["bfloat16"])


def first_not_finite(array: NDArray[Any], dtype: str) -> tuple[int, ...] | None:
    """Index of the first inf or NaN in C order, or None; of bfloat16 the bits are given."""
    for row, numbers in enumerate(array):
        wrong = ~np.isfinite(as_float32(numbers) if dtype == "bfloat16" else numbers)
        if wrong.any():
            return row, *map(int, np.unravel_index(wrong.argmax(), wrong.shape))
    return None


def count_digits(
    given_NLD: NDArray[Any], kept_NLD: NDArray[Any], dtype: str, storage_dtype: str
) -> NDArray[np.int64]:
    """(2, L): how many numbers lost their digits when they were stored, how many are not 0.

    ``dtype`` is that of what was given; of bfloat16 the bits are given, on both sides.
    """
    exact = as_float32(given_NLD) if dtype == "bfloat16" else given_NLD
    near = np.nonzero(np.abs(exact) < SMALLEST[storage_dtype] / LOST)  # the others keep theirs
    few, rounded = exact[near], kept_NLD[near]
    rounded = as_float32(rounded) if storage_dtype == "bfloat16" else rounded
    lost_N = np.abs(rounded - few) > LOST * np.abs(few)
    lost_L, zero_L = (
        np.bincount(near[1][of], minlength=exact.shape[1]) for of in (lost_N, few == 0)
    )
    return np.stack([lost_L, len(exact) * exact.shape[2] - zero_L])


def check_digits(digits_2L: NDArray[Any], dtype: str, *, first_layer: int, where: str) -> None:
    """Refuse a layer of which too many numbers lost their digits, as ``count_digits`` counted."""
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


def width_of(values: Iterable[str]) -> int:
    return max((len(value.encode()) for value in values), default=1) or 1


def packed(values: Sequence[str], width: int) -> NDArray[np.uint8]:
    """Values as UTF-8 behind which zeros stand, (N, W); none holds a NUL."""
    fixed = np.array([value.encode() for value in values], dtype=f"S{width}")
    return fixed.view(np.uint8).reshape(len(values), width)


def unpacked(bytes_NW: NDArray[np.uint8]) -> list[str]:
    fixed = np.ascontiguousarray(bytes_NW).view(f"S{bytes_NW.shape[1]}")[:, 0]
    return [value.decode() for value in fixed.tolist()]
