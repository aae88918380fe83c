"""Sets of labels: what a row of a multi-label task has in a table and on disk.

In a table a set is a list, a text with a separator, or a column of 0 and 1 for every
label. Rows hold one JSON array of names. On disk a set is a 0 or 1 for every label.

N rows, K labels.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import (
    is_blank,
    is_missing_word,
    unusable_cell_error,
    value_with_type,
)
from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt
from gaam_cache.targets.base import LabelColumns, MatrixTarget, NoLabelError
from gaam_cache.targets.classes import class_of, is_doubtful, normal_spelling

UNLABELLED = 255
"""Every number of a row without labels on disk."""
MAX_NAMES_SHOWN = 10
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}
FLAGS |= {"false": False, "true": True}
"""Texts of a column of 0 and 1, in lower case."""


class LabelSets(MatrixTarget):
    """A set of labels a row, which may be empty: ``names`` are all labels."""

    kind = "label-sets"
    task = "multi-label"
    dtype = "uint8"
    array_dtypes = ("bool", *MatrixTarget.array_dtypes)
    array_words = "0 and 1, or truth values, (N, K)"

    @cached_property
    def _position_by_name(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def encode(self, labels: Sequence[str]) -> NDArray[np.uint8]:
        """1 for every label that a row has, else 0, (N, K)."""
        flags_NK = np.zeros((len(labels), len(self.names)), np.uint8)
        for row, label in enumerate(labels):
            positions = [self._position_by_name[name] for name in json.loads(label)]
            flags_NK[row, positions] = 1
        return flags_NK

    def encode_unlabelled(self, num_rows: int) -> NDArray[np.uint8]:
        return np.full((num_rows, len(self.names)), UNLABELLED, np.uint8)

    def decode(self, values: NDArray[Any]) -> list[str]:
        """The JSON arrays of the names whose number is 1, for numbers (N, K)."""
        return [
            _to_json([self.names[position] for position in np.flatnonzero(flag_K == 1)])
            for flag_K in np.asarray(values)
        ]

    def unknown_names(self, labels: Sequence[str]) -> set[str]:
        return set(_rows_per_name(labels)) - set(self.names)

    def summary(self, values: NDArray[Any]) -> dict[str, Any]:
        """The number of rows with every label, and with none."""
        counts = values.sum(0, dtype=np.int64).tolist()
        return {
            "rows_per_label": dict(zip(self.names, counts, strict=True)),
            "rows_without_label": int((~values.astype(bool).any(1)).sum()),
        }

    def warnings(
        self, labels_by_split: Mapping[str, Sequence[str]], confirmed: Collection[str]
    ) -> Iterator[str]:
        """Lines for labels that no row or every row has, and for odd names."""
        for split, labels in labels_by_split.items():
            counts = _rows_per_name(labels)
            absent = [name for name in self.names if not counts[name]]
            if absent:
                yield (
                    f"no row of '{split}' has {len(absent):,} of {len(self.names):,} "
                    f"labels ({_shown(absent)}): its scores say nothing of them"
                )
            constant = [name for name in self.names if counts[name] == len(labels)]
            if constant:
                yield f"every row of '{split}' has the labels {_shown(constant)}"

        confirmed_spellings = set(map(normal_spelling, confirmed))
        doubtful = [
            name
            for name in self.names
            if is_doubtful(name, self.names)
            and normal_spelling(name) not in confirmed_spellings
        ]
        if doubtful:
            yield f"these labels may stand for a missing label: {_shown(doubtful)}"

    @classmethod
    def from_labels(
        cls, labels: Sequence[str], declared: tuple[str, ...] | None
    ) -> Self:
        """The declared labels, or those that some row has, sorted."""
        return cls(declared or tuple(sorted(_rows_per_name(labels))))

    @classmethod
    def strata(cls, labels: Sequence[str]) -> Sequence[str]:
        """The rarest label of every row, of equal ones the first by the alphabet.

        Rows without labels have the stratum ''.
        """
        counts = _rows_per_name(labels)
        sets = map(json.loads, labels)
        return [
            min(names, key=lambda name: (counts[name], name), default="")
            for names in sets
        ]

    @classmethod
    def read(cls, record: Mapping[str, Any], columns: LabelColumns) -> str:
        """The set of a record: of its list or text, or of its columns of 0 and 1."""
        if len(columns.names) > 1:
            return _to_json(
                [name for name in columns.names if _flag_of(record[name], name)]
            )
        names = {
            class_of(
                entry,
                columns.declared,
                strip=columns.strip,
                odd_classes=columns.odd_classes,
            )
            for entry in _entries_of(record[columns.names[0]], columns)
        }
        # JSON hides half a character, which cannot be stored: encode refuses it
        "".join(names).encode()
        if columns.declared is None:
            return _to_json(sorted(names))
        unknown = names - set(columns.declared)
        if unknown:
            raise unusable_cell_error(
                "a label is not declared",
                min(unknown),
                f"one of: {_shown(columns.declared)}",
                "--label-column",
            )
        return _to_json([name for name in columns.declared if name in names])

    @classmethod
    def declared_names(cls, columns: LabelColumns) -> tuple[str, ...] | None:
        """Columns of 0 and 1 are labels, even where no row has them."""
        if len(columns.names) > 1:
            return columns.names
        return columns.declared

    @classmethod
    def claims_cell(cls, cell: object, columns: LabelColumns) -> bool:
        """A list of texts, or its JSON; or a list of numbers of declared labels."""
        entries = _parse_list(cell) if isinstance(cell, str) else cell
        if not isinstance(entries, list | tuple):
            return False
        types: tuple[type, ...] = (str,)
        if columns.declared is not None:
            types = (str, int)
        return all(isinstance(entry, types) for entry in entries)

    @classmethod
    def claims_array(cls, dtype: str, num_axes: int) -> bool:
        """Truth values, several a row."""
        return dtype == "bool" and num_axes == 2

    def check_matrix(self, values_NK: NDArray[Any], where: str) -> NDArray[np.uint8]:
        """The numbers as uint8; DataError for a number that is neither 0 nor 1."""
        is_bad_NK = (values_NK != 0) & (values_NK != 1)
        if is_bad_NK.any():
            index = tuple(np.argwhere(is_bad_NK)[0].tolist())
            raise DataError(
                "a label is neither 0 nor 1",
                expected="0 or 1 for every row and label (multi-label)",
                found=str(values_NK[index]),
                where=f"{where}, {self.location_of(index)}",
                hint="numbers are for --task regression",
            )
        return values_NK.astype(np.uint8)


def _to_json(names: Sequence[str]) -> str:
    """The canonical JSON of a set whose names are in order."""
    return json.dumps(names, separators=(",", ":"))


def _rows_per_name(labels: Sequence[str]) -> Counter[str]:
    """How many rows have each label; 0 for a label that none has."""
    counts = Counter[str]()
    for label in labels:
        counts.update(json.loads(label))
    return counts


def _parse_list(text: str) -> object:
    """The list that a text is the JSON of; None for any other text."""
    stripped = text.strip()
    if not (stripped.startswith("[") and stripped.endswith("]")):
        return None
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        return None


def _entries_of(cell: object, columns: LabelColumns) -> Sequence[Any]:
    """The entries of the list or text in a cell.

    A blank text is the empty set where a separator is set, and else a missing list.
    """
    entries = cell
    if isinstance(cell, str) and columns.separator is not None:
        parts = [part.strip() for part in cell.split(columns.separator)]
        entries = [part for part in parts if not is_blank(part)]
    elif isinstance(cell, str):
        entries = _parse_list(cell)
    if isinstance(entries, list | tuple):
        return entries

    is_missing_text = isinstance(cell, str) and (
        is_blank(cell) or is_missing_word(cell)
    )
    is_nan = cell != cell  # noqa: PLR0124 only NaN differs from itself
    if cell is None or is_nan or is_missing_text:
        raise _missing_error("a list of labels", columns.names[0], cell)
    raise unusable_cell_error(
        "a label is not a list",
        cell,
        f"a list of labels in column '{columns.names[0]}', or a text and "
        '--set label-separator=";"',
        "--label-column",
    )


def _flag_of(cell: object, column: str) -> bool:
    """Whether the cell of a column of 0 and 1 is 1."""
    is_missing_text = isinstance(cell, str) and (
        is_blank(cell) or is_missing_word(cell)
    )
    is_nan = cell != cell  # noqa: PLR0124 only NaN differs from itself
    if cell is None or is_nan or is_missing_text:
        raise _missing_error("0 or 1", column, cell)
    word = str(cell).strip().lower()
    if word not in FLAGS:
        raise unusable_cell_error(
            "a label is neither 0 nor 1",
            cell,
            f"0 or 1 in column '{column}'",
            "--label-column",
        )
    return FLAGS[word]


def _missing_error(expected: str, column: str, cell: object) -> NoLabelError:
    """The error for a cell without a label."""
    return NoLabelError(
        f"{expected} is missing",
        expected=f"{expected} in column '{column}'",
        found=value_with_type(cell),
        hint="correct or remove the row, or name another column with --label-column; "
        "no label at all is []",
    )


def _shown(names: Sequence[str]) -> str:
    """The first names, with dots where there are more."""
    shown = ", ".join(map(excerpt, names[:MAX_NAMES_SHOWN]))
    return f"{shown}, ..." if len(names) > MAX_NAMES_SHOWN else shown
