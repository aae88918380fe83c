"""Strings of a fixed width: how kept columns lie in a shard.

N rows, W bytes of the longest value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def width_of(values: Iterable[str]) -> int:
    """Bytes of the longest value in UTF-8; at least 1."""
    return max((len(value.encode()) for value in values), default=1) or 1


def packed(values: Sequence[str], width: int) -> NDArray[np.uint8]:
    """Values as UTF-8 behind which zeros stand, (N, W); none holds a NUL."""
    fixed = np.array([value.encode() for value in values], dtype=f"S{width}")
    return fixed.view(np.uint8).reshape(len(values), width)


def unpacked(bytes_NW: NDArray[np.uint8]) -> list[str]:
    """The values."""
    fixed = np.ascontiguousarray(bytes_NW).view(f"S{bytes_NW.shape[1]}")[:, 0]
    known: dict[bytes, str] = {}  # one object for a value that many rows have
    return [known.get(value) or known.setdefault(value, value.decode()) for value in fixed.tolist()]


def string_fault(bytes_NW: NDArray[np.uint8]) -> int | None:
    """The first row that is no UTF-8, or in which something stands behind a zero; None if none."""
    behind_N = ((bytes_NW[:, :-1] == 0) & (bytes_NW[:, 1:] != 0)).any(1)
    if behind_N.any():
        return int(behind_N.argmax())
    apart = np.pad(bytes_NW, ((0, 0), (0, 1)))  # no character may reach from one row to the next
    try:
        apart.tobytes().decode()
    except UnicodeDecodeError as error:
        return error.start // apart.shape[1]
    return None
