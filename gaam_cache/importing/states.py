"""The states of a split, however their arrays lie, as rows of (layers, features).

N rows, L layers, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.format.plan import MAX_SHARD_BYTES
from gaam_cache.format.receipt import ITEM_BYTES, NUMPY_DTYPES
from gaam_cache.importing.containers._base import Array
from gaam_cache.importing.storing import READABLE, check_finite, count_digits, stored

BLOCK_BYTES = 8 * 2**20
"""Of states that are read and converted at a time: enough that a read costs more than asking."""
DIMENSIONS = {"nd": 2, "nld": 3, "lnd": 3}


class States:
    """States that lie in one array (N, L, D), (L, N, D) or (N, D), or in one (N, D) for each layer.

    Args:
        split: whose they are.
        arrays: one, or one for every layer.
        rows: how many there must be; None: as many as there are.
        axes: what those of an array are; None: as its dimensions say, rows first.

    Raises:
        DataError: arrays that cannot be that.
    """

    def __init__(
        self, split: str, arrays: Sequence[Array], rows: int | None, axes: str | None
    ) -> None:
        self.arrays = tuple(arrays)
        self._split = split
        for array in self.arrays:
            if array.fault is not None or array.dtype not in READABLE:
                fault = f" ({array.fault})" if array.fault else ""
                raise self._refused(
                    array,
                    "cannot be states",
                    expected=f"one of the types {', '.join(READABLE)}",
                    found=array.dtype + fault,
                )
        self.axes = axes or ("nld" if len(self.arrays) == 1 and len(arrays[0].shape) == 3 else "nd")
        self._labelled = rows is not None
        self.rows = rows or 0
        if rows is None and len(arrays[0].shape) == DIMENSIONS[self.axes]:
            self.rows = arrays[0].shape[self.axes.index("n")]
        for array in self.arrays:
            self._check_shape(array, axes)
        first = self.arrays[0].shape
        one = self.axes != "nd"
        self.num_layers = first[self.axes.index("l")] if one else len(self.arrays)
        self.hidden_size = first[-1]
        self.dtypes = {array.dtype for array in self.arrays}

    def _check_shape(self, array: Array, axes: str | None) -> None:
        dimensions, shape = len(array.shape), array.shape
        if len(self.arrays) > 1 and (dimensions != 2 or self.axes != "nd"):
            raise self._refused(
                array, "cannot be one of several layers", expected="(rows, features)"
            )
        if dimensions == 4 or (dimensions == 3 and self.axes == "nd"):
            raise self._refused(
                array,
                "has too many axes",
                expected="(rows, layers, features), (rows, features), or --set axes=lnd: "
                "(layers, rows, features)",
                hint="states of every token have to be pooled before: one vector for each layer",
            )
        if dimensions != DIMENSIONS[self.axes]:
            raise self._refused(array, "has other axes", expected=" x ".join(self.axes))
        if 0 in shape:
            raise self._refused(array, "is empty", expected="at least one row, layer and feature")
        at = self.axes.index("n")
        if shape[at] != self.rows:
            other = 1 - at
            fits = dimensions == 3 and shape[other] == self.rows
            better = "nld" if self.axes == "lnd" else "lnd"
            raise self._refused(
                array,
                "has not one entry per label",
                expected=f"{self.rows:,} rows, as there are labels",
                hint=f"--set axes={better}, if that is what its axes are" if fits else None,
            )
        if axes is None and dimensions == 3 and shape[1] == self.rows and self._labelled:
            raise self._refused(
                array,
                "has as many rows as layers",
                expected="--set axes=nld or --set axes=lnd, which says what its axes are",
            )
        if shape != self.arrays[0].shape:
            raise self._refused(
                array,
                "is of another shape than the first layer",
                expected=str(self.arrays[0].shape),
            )
        row_bytes = shape[-1] * (shape[self.axes.index("l")] if "l" in self.axes else 1)
        if row_bytes * min(ITEM_BYTES.values()) > MAX_SHARD_BYTES:
            raise self._refused(
                array, "has rows that fit no shard", expected=f"at most {MAX_SHARD_BYTES:,} bytes"
            )

    def _refused(
        self, array: Array, what: str, *, expected: str, found: str = "", hint: str | None = None
    ) -> DataError:
        return DataError(
            f"the array '{array.name}' {what}",
            expected=expected,
            found=found or f"{array.dtype} {array.shape}",
            where=f"{array.where}, for '{self._split}'",
            hint=hint,
        )

    def block_rows(self) -> int:
        """Rows to read at a time."""
        return max(1, BLOCK_BYTES // (self.num_layers * self.hidden_size * 8))

    def stored(
        self, start: int, stop: int, storage_dtype: str, digits: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Rows as they are stored, (n, L, D); bfloat16 as its bits.

        To ``digits``, (2, L), are added those that lost their digits, and those that are not 0.

        Raises:
            NumericsError: a number that is not finite, or that cannot be stored.
            DataError: a file is damaged.
        """
        shape = (stop - start, self.num_layers, self.hidden_size)
        out = np.empty(shape, NUMPY_DTYPES[storage_dtype])
        for first in range(start, stop, self.block_rows()):
            last = min(first + self.block_rows(), stop)
            self._store(out[first - start : last - start], first, last, storage_dtype, digits)
        return out

    def _store(
        self,
        out: NDArray[Any],
        start: int,
        stop: int,
        storage_dtype: str,
        digits: NDArray[np.int64] | None,
    ) -> None:
        whole = self.axes == "nld"
        for layer in range(1 if whole else self.num_layers):
            array = self.arrays[layer if len(self.arrays) > 1 else 0]
            given = array.read(start, stop, layer if self.axes == "lnd" else None)
            given_NLD = given if whole else given[:, None]
            kept = stored(given_NLD, array.dtype, storage_dtype)
            check_finite(
                given_NLD,
                kept,
                array.dtype,
                storage_dtype,
                row=start,
                layer=layer,
                where=array.where,
            )
            layers = slice(None) if whole else slice(layer, layer + 1)
            out[:, layers] = kept
            if digits is not None and array.dtype != storage_dtype:
                digits[:, layers] += count_digits(given_NLD, kept, array.dtype, storage_dtype)
