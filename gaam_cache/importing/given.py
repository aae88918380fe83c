"""Arrays that a program hands over, as those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.importing.containers._base import STRINGS, Array, dtype_word, fault_of, refusing


class GivenArray(Array):
    """Anything with a shape and a type that can be sliced: NumPy, torch, h5py, a memory map.

    Only the rows that are asked for are copied; those of a tensor on a GPU come to the host.

    Args:
        name: for messages.
        values: the array; or a list of strings or of whole numbers.

    Raises:
        DataError: none of these.
    """

    def __init__(self, name: str, values: Any) -> None:
        self.name = self.where = name
        if isinstance(values, (list, tuple)):
            values = _from_list(name, values)
        if not hasattr(values, "shape") or not hasattr(values, "dtype"):
            raise _no_array(name, values)
        self.shape = tuple(int(n) for n in values.shape)
        self._values = values
        self._is_tensor = str(values.dtype).startswith("torch.")
        if self._is_tensor:
            self.dtype = str(values.dtype).removeprefix("torch.")
            self._values = values.detach()
        elif str(values.dtype) == "bfloat16":  # of ml_dtypes
            self.dtype = "bfloat16"
        else:
            self.dtype = _word(values)
            self.fault = None if self.dtype == STRINGS else fault_of(np.dtype(values.dtype))

    def read(self, start: int, stop: int, outer: int | None = None) -> NDArray[Any]:
        """See ``Array.read``."""
        rows = slice(start, stop)
        with refusing(self.where):
            part = self._values[rows] if outer is None else self._values[outer, rows]
            if self._is_tensor:
                part = part.cpu()
                if self.dtype == "bfloat16":
                    import torch

                    return np.asarray(part.contiguous().view(torch.int16).numpy()).view("<u2")
                return np.asarray(part.numpy())
            found = np.asarray(part)
            if self.dtype == "bfloat16":
                return np.ascontiguousarray(found).view("<u2")
            if self.dtype == STRINGS:
                texts = [t.decode() if isinstance(t, bytes) else t for t in found.tolist()]
                found = np.empty(len(texts), object)
                found[:] = texts
            return found


def _word(values: Any) -> str:
    dtype = np.dtype(values.dtype)
    if dtype.hasobject and dtype.metadata and dtype.metadata.get("vlen") in (str, bytes):
        return STRINGS  # a data set of h5py
    if dtype.hasobject and isinstance(values, np.ndarray) and values.ndim == 1:
        return STRINGS if all(isinstance(one, str) for one in values.tolist()) else "object"
    return dtype_word(dtype)


def _from_list(name: str, values: Sequence[Any]) -> NDArray[Any]:
    if values and all(isinstance(one, str) for one in values):
        found = np.empty(len(values), object)
        found[:] = list(values)
        return found
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in values)
    if values and whole:
        return np.asarray(values, np.int64)
    raise _no_array(name, values)


def _no_array(name: str, values: Any) -> DataError:
    return DataError(
        f"{name} is no array",
        expected="an array with a shape and a dtype that can be sliced, or a list of strings or "
        "of whole numbers",
        found=type(values).__name__,
    )
