"""The storage types: how a shard stores numbers and strings, and how they are rounded.

N rows, L layers, D features, W bytes of the longest string.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Storage types of embeddings. NumPy has no bfloat16: its raw bits are stored in uint16.
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
}
"""The largest finite number of each storage type."""
NUMPY_DTYPES = {
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "int64": "<i8",
    "int32": "<i4",
    "uint8": "|u1",
    "utf8": "|u1",
}
"""NumPy types of the items in a file; strings have a fixed width in bytes."""


def as_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers in bfloat16, passed as uint16 of their bits, to equal float32."""
    # A bfloat16 is the upper half of the float32 of the same value.
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_storage_dtype(
    values: NDArray[Any], dtype: str, storage_dtype: str
) -> NDArray[Any]:
    """Round numbers to the nearest number of the storage type; ties go to even.

    Numbers beyond the range become infinite, which ``first_not_finite`` detects. On the
    way to bfloat16, float64 is rounded to float32 first, as in torch; every other
    conversion rounds once.

    Args:
        values: the numbers; bfloat16 is passed as uint16 of its bits.
        dtype: type of the numbers.
        storage_dtype: type to round them to.

    Returns:
        The rounded numbers; bfloat16 as uint16 of its bits.
    """
    if dtype == "bfloat16" and storage_dtype != "bfloat16":
        values = as_float32(values)

    with np.errstate(over="ignore", invalid="ignore"):
        # Bits of bfloat16 stay as they are; NumPy rounds to all other types.
        if dtype == storage_dtype or storage_dtype != "bfloat16":
            return values.astype(NUMPY_DTYPES[storage_dtype], copy=False)
        values_float32 = np.ascontiguousarray(values, np.float32)

    # NumPy cannot round to bfloat16. torch is imported only here, because those who
    # read a cache should not wait for its import.
    import torch

    tensor = torch.from_numpy(values_float32).bfloat16()
    bits: NDArray[Any] = tensor.view(torch.int16).numpy()
    return bits.view(NUMPY_DTYPES["bfloat16"])


def first_not_finite(array: NDArray[Any], dtype: str) -> tuple[int, ...] | None:
    """The index of the first inf or NaN, the last axis fastest; None if there is none.

    Args:
        array: the numbers; bfloat16 is passed as uint16 of its bits.
        dtype: type of the numbers.
    """
    # Row by row, so that no second array of the size of the first is made.
    for row, numbers in enumerate(array):
        if dtype == "bfloat16":
            numbers = as_float32(numbers)
        is_not_finite = ~np.isfinite(numbers)
        if is_not_finite.any():
            index = np.unravel_index(is_not_finite.argmax(), is_not_finite.shape)
            return (row, *map(int, index))
    return None


def utf8_width(strings: Iterable[str]) -> int:
    """Number of UTF-8 bytes of the longest string; 1 if all are empty.

    HDF5 has no strings of width 0.
    """
    longest = max((len(string.encode()) for string in strings), default=1)
    return max(longest, 1)


def pack_strings(strings: Sequence[str], width: int) -> NDArray[np.uint8]:
    """Encode strings as UTF-8 bytes, padded with zeros to ``width``: (N, W).

    A string must not contain NUL, which would look like padding.
    """
    encoded = [string.encode() for string in strings]
    fixed_N = np.array(encoded, dtype=f"S{width}")
    return fixed_N.view(np.uint8).reshape(len(strings), width)


def unpack_strings(bytes_NW: NDArray[np.uint8]) -> list[str]:
    """Decode the strings that ``pack_strings`` encoded, without their padding."""
    width = bytes_NW.shape[1]
    # NumPy drops the zeros at the end of a string of fixed width
    fixed_N = np.ascontiguousarray(bytes_NW).view(f"S{width}")[:, 0]
    return [string.decode() for string in fixed_N.tolist()]
