"""The rows of an import: states, labels, kept columns and numbers of tokens, each checked.

N rows, L layers, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError, DataError, NumericsError
from gaam_cache.extraction.job import class_order
from gaam_cache.import_config import IMPORTED
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows
from gaam_cache.store.arrays import STRINGS, Array
from gaam_cache.store.digest import digest_of
from gaam_cache.store.dtypes import (
    ITEM_BYTES,
    LARGEST,
    NUMPY_DTYPES,
    as_float32,
    check_digits,
    count_digits,
    first_not_finite,
    stored,
)
from gaam_cache.store.plan import MAX_VALUE_BYTES
from gaam_cache.terminal import Report

READABLE = (*ITEM_BYTES, "float64")
"""Types of states."""
BLOCK_BYTES = 8 * 2**20
"""Of states that are read and converted at a time: enough that a read costs more than asking."""
MOST_CLASSES = 10**6
"""A number beyond this is no class: a plan names every class, and would be too large to be read."""
SHOWN = 12
"""Classes that a message names."""


class States:
    """States in one array (N, L, D), (L, N, D) or (N, D), or in one (N, D) for each layer.

    Args:
        split: whose they are.
        arrays: one, or one for every layer.
        rows: how many there must be; None: as many as there are.
        axes: what those of an array are; None: as its dimensions say, rows first.
    """

    def __init__(
        self, split: str, arrays: Sequence[Array], rows: int | None, axes: str | None
    ) -> None:
        shape = arrays[0].shape
        self._arrays, self.axes = arrays, axes or ("nld" if len(shape) == 3 else "nd")
        at = self.axes.index("n")
        self.rows = shape[at] if rows is None and len(shape) > at else rows or 0
        for array in arrays:
            if problem := self._problem(array, unsure=axes is None and rows is not None):
                raise DataError(
                    f"the array '{array.name}' cannot be states of '{split}'",
                    expected=problem,
                    found=f"{array.dtype} {array.shape}",
                    where=array.where,
                )
        self.dtype = arrays[0].dtype
        self.num_layers = shape[self.axes.index("l")] if "l" in self.axes else len(arrays)
        self.hidden_size = shape[-1]
        self.block_rows = max(1, BLOCK_BYTES // (self.num_layers * self.hidden_size * 8))
        """Rows to read at a time."""

    def _problem(self, array: Array, *, unsure: bool) -> str | None:
        """What of an array must be otherwise."""
        shape, axes, first = array.shape, self.axes, self._arrays[0]
        if array.dtype not in READABLE:
            return f"one of the types {', '.join(READABLE)}"
        if len(shape) > 3:
            return "one vector for each layer: states of every token have to be pooled before"
        if len(self._arrays) > 1 and (axes, len(shape)) != ("nd", 2):
            return "(rows, features) of each of several layers"
        if len(shape) != len(axes):
            return f"axes {axes} (rows n, layers l, features d), or --set axes=AXES"
        if 0 in shape:
            return "at least one row, layer and feature"
        if shape[axes.index("n")] != self.rows:
            turned = len(shape) == 3 and self.rows in shape[:2]
            better = f"; --set axes={'nld' if axes == 'lnd' else 'lnd'} where rows are that axis"
            return f"{self.rows:,} rows, as there are labels" + (better if turned else "")
        if unsure and len(shape) == 3 and shape[0] == shape[1]:
            return "--set axes=nld or lnd, to tell rows from layers: there are as many"
        same = (array.dtype, shape) == (first.dtype, first.shape)
        return None if same else f"{first.dtype} {first.shape}, as of the first layer"

    def stored(
        self, start: int, stop: int, storage_dtype: str, digits: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Rows as they are stored, (n, L, D); bfloat16 as its bits.

        To ``digits``, (2, L), are added those that lost their digits, and those that are not 0.
        """
        size = (stop - start, self.num_layers, self.hidden_size)
        out = np.empty(size, NUMPY_DTYPES[storage_dtype])
        for first in range(start, stop, self.block_rows):
            last = min(first + self.block_rows, stop)
            given_NLD = self._read(first, last)
            kept = out[first - start : last - start] = stored(given_NLD, self.dtype, storage_dtype)
            if (bad := first_not_finite(kept, storage_dtype)) is not None:
                given = given_NLD[bad]
                value = float(as_float32(given) if self.dtype == "bfloat16" else given)
                raise self._unstorable(value, storage_dtype, first + bad[0] + 1, *bad[1:])
            if digits is not None and self.dtype != storage_dtype:
                digits += count_digits(given_NLD, kept, self.dtype, storage_dtype)
        return out

    def _read(self, first: int, last: int) -> NDArray[Any]:
        array = self._arrays[0]
        if self.axes == "nld":
            return array.read(first, last)
        if self.axes == "lnd":
            layers = [array.read(first, last, layer) for layer in range(self.num_layers)]
        else:
            layers = [one.read(first, last) for one in self._arrays]
        return np.stack(layers, axis=1)

    def _unstorable(
        self, value: float, storage_dtype: str, row: int, layer: int, feature: int
    ) -> NumericsError:
        of_layer = self._arrays[layer if len(self._arrays) > 1 else 0]
        what, hint = f"is {value}", "look at the row: whoever made it computed no number there"
        if np.isfinite(value):
            wider = "bfloat16 or float32" if storage_dtype == "float16" else "float32"
            what, hint = f"cannot be stored as {storage_dtype}", f"--storage-dtype {wider}"
        return NumericsError(
            f"a state of layer {layer + 1} {what}",
            expected=f"finite values up to {LARGEST[storage_dtype]:g}",
            found=f"{value:g}",
            where=f"{of_layer.where}, row {row}, layer {layer + 1}, feature {feature}",
            hint=hint,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedRows(Rows):
    """Rows whose inputs nobody has: digests of their stored states, bit by bit, stand for them.

    ``check`` makes these.
    """

    kind: ClassVar[str] = IMPORTED
    noun: ClassVar[str] = "state"
    inputs: list[bytes]
    states: States
    num_tokens: NDArray[np.int32] | None
    """How many tokens each was pooled from, where somebody says so."""
    taken: dict[str, Any]
    """What is taken as what, for the fingerprint: JSON values."""

    def __len__(self) -> int:
        return self.states.rows

    @property
    def tokens(self) -> NDArray[np.int32]:
        """The same, or a 1 for each."""
        return np.ones(len(self), np.int32) if self.num_tokens is None else self.num_tokens

    def contents(self) -> Iterator[bytes]:
        """The digest of every row."""
        return iter(self.inputs)

    def excerpt(self, row: int) -> str:
        """All that people know of a row."""
        return f"all layers are the same; its label is '{self.labels[row]}'"

    def check(self, name: str, storage_dtype: str, report: Report) -> None:
        """Read and check every number once."""
        states = self.states
        digits_2L = np.zeros((2, states.num_layers), np.int64)
        for start in range(0, states.rows, states.block_rows):
            report(start, states.rows, f"checking '{name}'")
            stop = min(start + states.block_rows, states.rows)
            for row_LD in states.stored(start, stop, storage_dtype, digits_2L):
                self.inputs.append(bytes.fromhex(digest_of(row_LD.data)))
        where = f"{self.origin}, row 1 to row {states.rows}"
        check_digits(digits_2L, storage_dtype, first_layer=1, where=where)


def _one_each(array: Array, role: str, rows: int | None, *, strings: bool = True) -> NDArray[Any]:
    """A whole number or string for every row."""
    right = array.dtype.startswith(("int", "uint")) or (strings and array.dtype == STRINGS)
    if not right or len(array.shape) != 1 or rows not in (None, array.shape[0]):
        count = "" if rows is None else f", {rows:,} in all"
        raise DataError(
            f"the array '{array.name}' cannot be {role}",
            expected=f"one whole number{' or string' if strings else ''} for every row{count}",
            found=f"{array.dtype} {array.shape}",
            where=array.where,
        )
    return array.read(0, array.shape[0])


def read_labels(
    arrays: Mapping[str, Array], names: tuple[str, ...] | None
) -> tuple[tuple[str, ...], dict[str, list[str]]]:
    """What the classes are called, and that of every row of every labelled split."""
    reference = "train" if "train" in arrays else next(iter(arrays))
    values = {
        split: _one_each(array, f"the labels of '{split}'", None).tolist()
        for split, array in arrays.items()
    }
    strings = arrays[reference].dtype == STRINGS
    if names is None and strings:
        names = class_order(set(values[reference]))
    elif names is None:
        most = max(values[reference], default=-1) + 1
        names = tuple(map(str, range(min(most, MOST_CLASSES))))
    if "" in names or len(set(names)) < len(names):
        found = ", ".join(map(excerpt, names[:SHOWN]))
        raise ConfigError("class names must differ, and none be empty", found=found)
    class_of = {name: name for name in names} if strings else dict(enumerate(names))
    for split, of_split in values.items():
        wrong = next((row for row, value in enumerate(of_split) if value not in class_of), None)
        if wrong is not None:
            known = ", ".join(map(excerpt, list(class_of)[:SHOWN]))
            raise DataError(
                f"a label of '{split}' is no class",
                expected=f"one of the {len(names):,} classes: {known}"
                + (", ..." if len(names) > SHOWN else ""),
                found=excerpt(of_split[wrong]),
                where=f"{arrays[split].where}, row {wrong + 1}",
                hint=f"classes are those of '{reference}'; --set class-name=NAME, once for each "
                "class, says others",
            )
    return names, {split: [class_of[one] for one in of] for split, of in values.items()}


def read_column(array: Array, rows: int) -> list[str]:
    """A column that is kept; whole numbers become their digits."""
    found = [str(value) for value in _one_each(array, "a column", rows).tolist()]
    for row, value in enumerate(found):
        if "\0" in value or len(value.encode()) > MAX_VALUE_BYTES:
            raise DataError(
                f"a value of the column '{array.name}' cannot be kept",
                expected=f"text of at most {MAX_VALUE_BYTES:,} bytes without NUL",
                found=excerpt(value),
                where=f"{array.where}, row {row + 1}",
            )
    return found


def read_num_tokens(array: Array | None, rows: int) -> NDArray[np.int32] | None:
    """How many tokens every row was pooled from."""
    if array is None:
        return None
    values = _one_each(array, "numbers of tokens", rows, strings=False)
    wrong_N = (values < 1) | (values > 2**31 - 1)
    if wrong_N.any():
        row = int(wrong_N.argmax())
        raise DataError(
            f"the array '{array.name}' cannot be numbers of tokens",
            expected="whole numbers from 1",
            found=str(values[row]),
            where=f"{array.where}, row {row + 1}",
        )
    return values.astype(np.int32)
