"""Numbers and strings as they lie on disk: types, rounding, and what a type cannot hold.

N rows, L layers, D features, W bytes of the longest string.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# of every storage type of embeddings; bfloat16 lies on disk as raw bits in uint16
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
}
NUMPY_DTYPES = {
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "int64": "<i8",
    "int32": "<i4",
    "utf8": "|u1",
}
"""How items lie in a file; of texts of a fixed width their bytes, filled with zeros."""


def as_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The equal numbers of bfloat16 that came as its bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_storage_dtype(
    values: NDArray[Any], dtype: str, storage_dtype: str
) -> NDArray[Any]:
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


def utf8_width(values: Iterable[str]) -> int:
    return max((len(value.encode()) for value in values), default=1) or 1


def pack_strings(values: Sequence[str], width: int) -> NDArray[np.uint8]:
    """Values as UTF-8 behind which zeros stand, (N, W); none holds a NUL."""
    fixed = np.array([value.encode() for value in values], dtype=f"S{width}")
    return fixed.view(np.uint8).reshape(len(values), width)


def unpack_strings(bytes_NW: NDArray[np.uint8]) -> list[str]:
    fixed = np.ascontiguousarray(bytes_NW).view(f"S{bytes_NW.shape[1]}")[:, 0]
    return [value.decode() for value in fixed.tolist()]
