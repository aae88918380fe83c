"""The rows of an import: states, labels, kept columns and numbers of tokens, each checked.

N rows, L layers, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError, DataError, NumericsError
from gaam_cache.extraction.job import class_order
from gaam_cache.import_config import IMPORTED
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import NO_LABEL, Rows
from gaam_cache.store.arrays import STRINGS, Array
from gaam_cache.store.choose import Taken
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

    ``rows`` is how many there must be; ``axes`` what those of an array are, or None: as its
    dimensions say, rows first.
    """

    def __init__(
        self, split: str, arrays: Sequence[Array], rows: int | None, axes: str | None
    ) -> None:
        self._arrays, self.dtype, shape = arrays, arrays[0].dtype, arrays[0].shape
        self.axes = axes or ("nld" if len(shape) == 3 else "nd")
        sizes = dict(zip(self.axes, shape, strict=False))
        fits = self.dtype in READABLE and len(shape) == len(self.axes) and 0 not in shape
        fits &= rows in (None, sizes.get("n")) and (len(arrays) == 1 or self.axes == "nd")
        # rows and layers cannot be told apart where there are as many
        fits &= axes is not None or rows is None or len(shape) < 3 or shape[0] != shape[1]
        for array in arrays:
            if not fits or (array.dtype, array.shape) != (self.dtype, shape):
                count = "rows" if rows is None else f"{rows:,} rows, as there are labels"
                raise DataError(
                    f"the array '{array.name}' cannot be states of '{split}'",
                    expected=f"axes {self.axes} (n {count}, l layers, d features), none of them "
                    f"empty, of {', '.join(READABLE)}; all arrays of a split alike",
                    found=f"{array.dtype} {array.shape}",
                    where=array.where,
                    hint="--set axes=nld, lnd or nd says what the axes are; states of every token "
                    "have to be pooled before, to one vector for each layer",
                )
        self.rows, self.hidden_size = sizes["n"], sizes["d"]
        self.num_layers = sizes.get("l", len(arrays))
        self.block_rows = max(1, BLOCK_BYTES // (self.num_layers * self.hidden_size * 8))
        """Rows to read at a time."""

    def stored(
        self, start: int, stop: int, storage_dtype: str, digits_2L: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Rows as they are stored, (n, L, D); bfloat16 as its bits.

        To ``digits_2L`` are added the numbers that lost their digits, and those that are not 0.
        """
        size = (stop - start, self.num_layers, self.hidden_size)
        out = np.empty(size, NUMPY_DTYPES[storage_dtype])
        for first in range(start, stop, self.block_rows):
            rows = slice(first, min(first + self.block_rows, stop))
            if self.axes == "nld":
                given_NLD = self._arrays[0].read(rows)
            elif self.axes == "lnd":
                layers = [self._arrays[0].read(rows, layer) for layer in range(self.num_layers)]
                given_NLD = np.stack(layers, axis=1)
            else:
                given_NLD = np.stack([one.read(rows) for one in self._arrays], axis=1)
            kept = out[first - start : rows.stop - start]
            kept[:] = stored(given_NLD, self.dtype, storage_dtype)
            if (bad := first_not_finite(kept, storage_dtype)) is not None:
                raise self._unstorable(given_NLD[bad], storage_dtype, first, *bad)
            if digits_2L is not None and self.dtype != storage_dtype:
                digits_2L += count_digits(given_NLD, kept, self.dtype, storage_dtype)
        return out

    def _unstorable(
        self, given: Any, storage_dtype: str, first: int, row: int, layer: int, feature: int
    ) -> NumericsError:
        value = float(as_float32(given) if self.dtype == "bfloat16" else given)
        of_layer = self._arrays[layer if len(self._arrays) > 1 else 0]
        hint = "look at the row: whoever made it computed no number there"
        return NumericsError(
            f"a state of layer {layer + 1} cannot be stored as {storage_dtype}",
            expected=f"finite values up to {LARGEST[storage_dtype]:g}",
            found=f"{value:g}",
            where=f"{of_layer.where}, row {first + row + 1}, layer {layer + 1}, feature {feature}",
            hint="a wider --storage-dtype: bfloat16 or float32" if np.isfinite(value) else hint,
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
    tokens: NDArray[np.int32]
    """How many each was pooled from, or a 1."""
    taken: dict[str, Any]
    """What is taken as what, for the fingerprint: JSON values."""

    def __len__(self) -> int:
        return self.states.rows

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
                self.inputs.append(sha256(row_LD).digest())
        where = f"{self.origin}, row 1 to row {states.rows}"
        check_digits(digits_2L, storage_dtype, first_layer=1, where=where)


def imported_rows(
    splits: Mapping[str, Taken], axes: str | None, names: tuple[str, ...] | None
) -> tuple[dict[str, ImportedRows], tuple[str, ...]]:
    """The rows of every split; and the classes: ``names``, or what the labels call them."""
    given = {split: one.labels for split, one in splits.items() if one.labels is not None}
    if not given:
        raise ConfigError("no split has labels", expected="one at least that has")
    reference = "train" if "train" in given else next(iter(given))
    known, strings = _one_each(given[reference], "labels"), given[reference].dtype == STRINGS
    if names is None and strings:
        names = class_order(set(known))
    elif names is None:
        names = tuple(map(str, range(min(max(known, default=-1) + 1, MOST_CLASSES))))
    shown = ", ".join(map(excerpt, names[:SHOWN])) + ", ..." * (len(names) > SHOWN)
    if "" in names or len(set(names)) < len(names):
        raise ConfigError("class names must differ, and none be empty", found=shown)
    class_of = {name: name for name in names} if strings else dict(enumerate(names))
    classes = f"one of the {len(names):,} classes of '{reference}' or of class-name: {shown}"
    classes += "" if strings else f", by numbers from 0 to {len(names) - 1}"
    text = f"whole numbers, or texts of at most {MAX_VALUE_BYTES:,} bytes without NUL"
    rows = {}
    for split, one in splits.items():
        labels, count = None, None
        if one.labels is not None:
            of = _one_each(one.labels, f"labels of '{split}'", classes, class_of.__contains__)
            labels, count = [class_of[label] for label in of], len(of)
        states = States(split, one.states, count, axes)
        tokens = np.ones(states.rows, np.int32)
        if one.num_tokens is not None:
            role = "numbers of tokens", "whole numbers from 1", _is_number_of_tokens
            tokens = np.array(_one_each(one.num_tokens, *role, rows=states.rows), np.int32)
        kept = {
            name: _one_each(array, "a column", text, _can_be_kept, states.rows)
            for name, array in one.columns.items()
        }
        alone = {"labels": one.labels, "num_tokens": one.num_tokens}
        first, last = one.states[0], one.states[-1]
        rows[split] = ImportedRows(
            inputs=[],
            labels=labels or [NO_LABEL] * states.rows,
            class_names=None,
            origin=first.where if first is last else f"{first.where} to {last.name}",
            kept={name: list(map(str, values)) for name, values in kept.items()},
            labelled=labels is not None,
            states=states,
            tokens=tokens,
            taken={
                "states": [array.name for array in one.states],
                "dtypes": [states.dtype],
                "axes": states.axes,
                "columns": {name: array.name for name, array in one.columns.items()},
                **{role: array.name for role, array in alone.items() if array is not None},
            },
        )
    return rows, names


def _is_number_of_tokens(value: Any) -> bool:
    return isinstance(value, int) and 1 <= value < 2**31


def _can_be_kept(value: Any) -> bool:
    return "\0" not in str(value) and len(str(value).encode()) <= MAX_VALUE_BYTES


def _one_each(
    array: Array,
    role: str,
    expected: str = "whole numbers or strings",
    good: Callable[[Any], bool] = lambda value: True,
    rows: int | None = None,
) -> list[Any]:
    """A whole number or string for every row, each of them ``good``."""
    found, where = f"{array.dtype} {array.shape}", array.where
    right = array.dtype.startswith(("int", "uint")) or array.dtype == STRINGS
    if right and len(array.shape) == 1 and rows in (None, array.shape[0]):
        values: list[Any] = array.read(slice(None)).tolist()
        wrong = next((row for row, value in enumerate(values) if not good(value)), None)
        if wrong is None:
            return values
        found, where = excerpt(values[wrong]), f"{where}, row {wrong + 1}"
    raise DataError(
        f"the array '{array.name}' cannot be {role}",
        expected=f"one for every row{'' if rows is None else f', {rows:,} in all'}: {expected}",
        found=found,
        where=where,
    )
