"""The header of an array as NumPy saves it."""

from __future__ import annotations

from tokenize import TokenError
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy


class Header(NamedTuple):
    """What it says."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    bytes: int
    """Of the header itself."""


def read_header(file: BinaryIO, size: int) -> Header:
    """Read it from the beginning of a stream.

    Args:
        file: at its beginning.
        size: bytes of header and array.

    Raises:
        ValueError: no such header, or not one of so many bytes.
    """
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format of arrays is not read")
    try:
        shape, fortran_order, dtype = readers[version](file)
    except (MemoryError, TokenError) as error:  # of a parser that is asked to nest too deeply
        raise ValueError("its header is no description of an array") from error
    begin = file.tell()
    if not all(type(n) is int and 0 <= n < 2**48 for n in shape):
        raise ValueError(f"no shape: {shape}")
    count = 1
    for n in shape:
        count *= n
    if not dtype.hasobject and begin + count * dtype.itemsize != size:
        raise ValueError(
            f"{size:,} bytes, its header says {begin + count * dtype.itemsize:,}: it was cut off, "
            "or is damaged"
        )
    return Header(shape, dtype, fortran_order and len(shape) > 1, begin)
