"""Labels as they were given -> class numbers, and what the classes are called.

N rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import DataError
from gaam_cache.extraction.job import class_order
from gaam_cache.format.plan import MAX_SHARDS
from gaam_cache.importing.containers._base import STRINGS, Array
from gaam_cache.messages import excerpt

READ_AT_A_TIME = 2**16
MOST_CLASSES = 10**6
"""A number beyond this is no class: a plan names every class, and would be too large to be read."""
FEW_CLASSES = 20


class NamedLabels(Sequence[str]):
    """The class name of every row."""

    def __init__(self, numbers: NDArray[np.int64], names: Sequence[str]) -> None:
        self.numbers = numbers
        self._names = names

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        """All of them in order."""
        return (self._names[number] for number in self.numbers.tolist())

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Of one row, or a list."""
        found = self.numbers[index]
        if isinstance(index, slice):
            return [self._names[number] for number in found]
        return self._names[int(found)]


class Classes(NamedTuple):
    """The classes, and which every row is of."""

    names: tuple[str, ...]
    numbers: dict[str, NDArray[np.int64]]
    """Split -> (N,)."""


def read_labels(
    arrays: Mapping[str, Array], names: tuple[str, ...] | None, reference: str
) -> Classes:
    """Class numbers of all splits.

    Args:
        arrays: split -> its labels, of which ``rows_of_labels`` was asked.
        names: of the classes in order, where somebody says them.
        reference: the split whose labels are all classes there are, where nobody does.

    Raises:
        DataError: labels that are no class; says which.
    """
    are_texts = {split: array.dtype == STRINGS for split, array in arrays.items()}
    if len(set(are_texts.values())) > 1:
        raise DataError(
            "labels are numbers in one split and strings in another",
            expected="the same everywhere",
            found=", ".join(f"{split}: {arrays[split].dtype}" for split in arrays),
        )
    if are_texts[reference]:
        return _from_texts(arrays, names, reference)
    return _from_numbers(arrays, names, reference)


def rows_of_labels(array: Array, split: str) -> int:
    """How many rows an array is the labels of.

    Raises:
        DataError: it cannot be any.
    """
    whole = array.dtype.startswith(("int", "uint"))
    if array.fault is None and len(array.shape) == 1 and (whole or array.dtype == STRINGS):
        if not array.shape[0]:
            raise DataError(f"'{split}' has no rows", where=array.where)
        if array.shape[0] > MAX_SHARDS * 2**20:
            raise DataError(f"'{split}' has more rows than a cache", where=array.where)
        return array.shape[0]
    raise DataError(
        f"the array '{array.name}' cannot be the labels of '{split}'",
        expected="one whole number from 0, or one string, for every row",
        found=f"{array.dtype} {array.shape}" + (f" ({array.fault})" if array.fault else ""),
        where=array.where,
        hint="--labels SPLIT=NAME names another array",
    )


def _from_numbers(
    arrays: Mapping[str, Array], names: tuple[str, ...] | None, reference: str
) -> Classes:
    numbers = {split: _read_numbers(array) for split, array in arrays.items()}
    count = len(names) if names else int(numbers[reference].max()) + 1
    for split, number_N in numbers.items():
        wrong_N = (number_N < 0) | (number_N >= min(count, MOST_CLASSES))
        if wrong_N.any():
            row = int(wrong_N.argmax())
            known = f"{count:,} classes" + ("" if names else f", as in '{reference}'")
            raise DataError(
                "a label is no class",
                expected=f"0 to {min(count, MOST_CLASSES) - 1:,} ({known})",
                found=str(number_N[row]),
                where=f"{arrays[split].where}, row {row + 1}",
                hint="--set class-name=NAME, once for each class, says how many there are",
            )
    return Classes(names or tuple(map(str, range(count))), numbers)


def _read_numbers(array: Array) -> NDArray[np.int64]:
    parts = []
    for start in range(0, array.shape[0], READ_AT_A_TIME):
        part = array.read(start, min(start + READ_AT_A_TIME, array.shape[0]))
        # of uint64 what is beyond int64 stays wrong: negative
        parts.append(part.astype(np.int64))
    return np.concatenate(parts)


def _from_texts(
    arrays: Mapping[str, Array], names: tuple[str, ...] | None, reference: str
) -> Classes:
    met: dict[str, int] = {}
    first: dict[tuple[str, int], int] = {}
    codes: dict[str, NDArray[np.int64]] = {}
    for split, array in arrays.items():
        codes[split] = np.empty(array.shape[0], np.int64)
        for start in range(0, array.shape[0], READ_AT_A_TIME):
            part = array.read(start, min(start + READ_AT_A_TIME, array.shape[0]))
            for row, text in enumerate(part.tolist(), start):
                code = met.setdefault(_checked(text, array, row), len(met))
                first.setdefault((split, code), row)
                codes[split][row] = code
    texts = list(met)
    there = {texts[code] for split, code in first if split == reference}
    known = names or class_order(there)
    number = {name: index for index, name in enumerate(known)}
    for (split, code), row in first.items():
        if texts[code] not in number:
            shown = ", ".join(excerpt(name) for name in known[:FEW_CLASSES])
            source = "the class names" if names else f"'{reference}'"
            raise DataError(
                f"the label {excerpt(texts[code])} occurs in '{split}' but not in {source}",
                expected=f"one of: {shown}" + (", ..." if len(known) > FEW_CLASSES else ""),
                found=excerpt(texts[code]),
                where=f"{arrays[split].where}, row {row + 1}",
                hint="no decoder can learn a class without examples: mend the labels",
            )
    new = np.array([number.get(text, -1) for text in texts], np.int64)
    return Classes(tuple(known), {split: new[old_N] for split, old_N in codes.items()})


def _checked(text: Any, array: Array, row: int) -> str:
    try:
        if isinstance(text, str) and text:
            text.encode()
            return text
    except UnicodeEncodeError:
        pass
    raise DataError(
        "a label is no text",
        expected="a string with something in it, in whole characters",
        found=excerpt(text),
        where=f"{array.where}, row {row + 1}",
    )
