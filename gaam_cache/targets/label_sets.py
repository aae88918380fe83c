"""Sets of labels: what a row of a multi-label task has in a table and on disk.

In a table a set is a list, a text with a separator, or a column of 0 and 1 for every
label. Rows hold one JSON array of names. On disk a set is a 0 or 1 for every label.

N rows, K labels.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import (
    is_blank,
    is_missing,
    lookalike_warning,
    parse_list,
    unusable_cell_error,
    value_with_type,
)
from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt, join_first
from gaam_cache.targets.base import SKIP_HINT, LabelColumns, MatrixTarget, NoLabelError
from gaam_cache.targets.classes import class_of, doubtful_names

UNLABELLED = 255
"""Number on disk in place of each 0 or 1 of a row whose labels are unknown."""
MAX_NAMES_SHOWN = 10
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}
FLAGS |= {"false": False, "true": True, "no": False, "yes": True}
"""Texts in a column of 0 and 1, in lower case -> whether the row has the label."""


class LabelSets(MatrixTarget):
    """The labels of a multi-label task: every row has a set of them, maybe empty.

    ``names`` are all labels. The label of a row, as it travels, is the JSON array of
    the names in its set.
    """

    kind = "label-sets"
    task = "multi-label"
    dtype = "uint8"
    array_dtypes = ("bool", *MatrixTarget.array_dtypes)
    array_words = "0 and 1, or truth values, (N, K)"

    def encode(self, labels: Sequence[str]) -> NDArray[np.uint8]:
        """1 for every label that a row has, else 0, (N, K).

        Args:
            labels: the JSON array of the label names of every row.

        Raises:
            KeyError: a row has a label that is not in ``names``.
        """
        flags_NK = np.zeros((len(labels), len(self.names)), np.uint8)
        for row, label in enumerate(labels):
            positions = [self._position_by_name[name] for name in json.loads(label)]
            flags_NK[row, positions] = 1
        return flags_NK

    def encode_unlabelled(self, num_rows: int) -> NDArray[np.uint8]:
        """255 in place of every 0 or 1, (N, K)."""
        return np.full((num_rows, len(self.names)), UNLABELLED, np.uint8)

    def decode(self, values: NDArray[Any]) -> list[str]:
        """The JSON array of the label names of every row.

        Args:
            values: 1 for every label that a row has, else 0, (N, K).
        """
        labels = []
        for flag_K in np.asarray(values):
            names = [self.names[position] for position in np.flatnonzero(flag_K == 1)]
            labels.append(_to_json(names))
        return labels

    def unknown_names(self, labels: Sequence[str]) -> set[str]:
        """The names that some row has, but that are not in ``names``."""
        return set(_rows_per_name(labels)) - set(self.names)

    def summary(self, values: NDArray[Any]) -> dict[str, Any]:
        """The number of rows that have each label, and of rows that have none.

        Args:
            values: 1 for every label that a row has, else 0, (N, K).
        """
        counts = values.sum(0, dtype=np.int64).tolist()
        return {
            "rows_per_label": dict(zip(self.names, counts, strict=True)),
            "rows_without_label": int((~values.astype(bool).any(1)).sum()),
        }

    def warnings(
        self, labels_by_split: Mapping[str, Sequence[str]], confirmed: Collection[str]
    ) -> Iterator[str]:
        """Yield a line for labels that no row or every row of a split has.

        Further lines are for names that look alike, and for names such as 'nan' that
        may mean a missing label.

        Args:
            labels_by_split: split -> the label of every row, a JSON array of names.
            confirmed: names that the user has confirmed as labels.
        """
        for split, labels in labels_by_split.items():
            counts = _rows_per_name(labels)
            absent = [name for name in self.names if not counts[name]]
            if absent:
                yield (
                    f"no row of '{split}' has {len(absent):,} of {len(self.names):,} "
                    f"labels ({_first_names(absent)}): its scores say nothing of them"
                )
            constant = [name for name in self.names if counts[name] == len(labels)]
            if constant:
                yield f"every row of '{split}' has the labels {_first_names(constant)}"

        yield from lookalike_warning(self.names, "labels")

        doubtful = doubtful_names(self.names, confirmed)
        if doubtful:
            shown_names = _first_names(doubtful)
            yield f"these labels may stand for a missing label: {shown_names}"

    @classmethod
    def from_labels(
        cls, labels: Sequence[str], declared: tuple[str, ...] | None
    ) -> Self:
        """The declared labels, or else those that some row has, sorted."""
        return cls(declared or tuple(sorted(_rows_per_name(labels))))

    @classmethod
    def strata(cls, labels: Sequence[str]) -> Sequence[str]:
        """The stratum of every row: its rarest label, '' for a row without any.

        Of equally rare labels it is the first by the alphabet.
        """
        counts = _rows_per_name(labels)
        strata = []
        for label in labels:
            names: list[str] = json.loads(label)
            strata.append(min(names, key=lambda name: (counts[name], name), default=""))
        return strata

    @classmethod
    def read(cls, record: Mapping[str, Any], columns: LabelColumns) -> str:
        """The set of labels of a record, as the JSON array of their names.

        A single label column holds a list, or a text with a separator. Several label
        columns hold 0 and 1, and their names are the labels.

        Raises:
            NoLabelError: the labels are missing.
            DataError: a cell cannot be such labels.
            UnicodeEncodeError: a label contains half a character.
        """
        if len(columns.names) > 1:
            return _to_json(
                [name for name in columns.names if _flag_of(record[name], name)]
            )
        [list_column] = columns.names
        names = {
            class_of(
                entry,
                columns.declared_names,
                strip=columns.strip,
                confirmed_classes=columns.confirmed_classes,
            )
            for entry in _entries_of(record[list_column], columns)
        }
        # Half a character (an unpaired surrogate) cannot be stored, and JSON would hide
        # it. The caller expects the UnicodeEncodeError that this raises.
        "".join(names).encode()
        if columns.declared_names is None:
            return _to_json(sorted(names))
        unknown = names - set(columns.declared_names)
        if unknown:
            raise unusable_cell_error(
                "a label is not declared",
                min(unknown),
                f"one of: {_first_names(columns.declared_names)}",
                "--label-column",
            )
        return _to_json([name for name in columns.declared_names if name in names])

    @classmethod
    def declared_names(cls, columns: LabelColumns) -> tuple[str, ...] | None:
        """All labels that a table declares; None if it declares none.

        Several label columns are columns of 0 and 1. Their names are the labels, even
        labels that no row has. The type of a single column of lists may declare labels.
        """
        if len(columns.names) > 1:
            return columns.names
        return columns.declared_names

    @classmethod
    def claims_cell(cls, cell: object, columns: LabelColumns) -> bool:
        """Whether a cell is a list of texts, or a text that is such a list.

        Where the table declares labels, the list may have their numbers, too.
        """
        entries = parse_list(cell) if isinstance(cell, str) else cell
        if not isinstance(entries, list | tuple):
            return False
        types: tuple[type, ...] = (str,)
        if columns.declared_names is not None:
            types = (str, int)
        return all(isinstance(entry, types) for entry in entries)

    @classmethod
    def claims_array(cls, dtype: str, num_axes: int) -> bool:
        """Whether an array has several truth values a row."""
        return dtype == "bool" and num_axes == 2

    def check_matrix(self, values_NK: NDArray[Any], where: str) -> NDArray[np.uint8]:
        """Convert 0 and 1, (N, K), to uint8, the type that is stored.

        Args:
            values_NK: the numbers or truth values that a program passes.
            where: the name of the array, for messages.

        Raises:
            DataError: a number is neither 0 nor 1.
        """
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
    """The JSON array of label names in their order, without white space."""
    return json.dumps(names, separators=(",", ":"))


def _rows_per_name(labels: Sequence[str]) -> Counter[str]:
    """Name of a label -> number of rows that have it; 0 for any other name.

    Args:
        labels: the JSON array of the label names of every row.
    """
    counts = Counter[str]()
    for label in labels:
        counts.update(json.loads(label))
    return counts


def _entries_of(cell: object, columns: LabelColumns) -> Sequence[Any]:
    """The labels in a cell: the entries of its list, or the parts of its text.

    A text is split at the separator that the user has set; without one it must be a
    list, see ``parse_list``. A blank text has no labels if there is a separator, and
    else counts as missing.

    Raises:
        NoLabelError: the labels are missing.
        DataError: the cell holds neither a list nor such a text.
    """
    entries = cell
    if isinstance(cell, str) and columns.separator is not None:
        parts = [part.strip() for part in cell.split(columns.separator)]
        entries = [part for part in parts if not is_blank(part)]
    elif isinstance(cell, str):
        entries = parse_list(cell)
    if isinstance(entries, list | tuple):
        return entries

    if is_missing(cell):
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
    if is_missing(cell):
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
    """The error for a cell that has no label.

    Args:
        expected: what is missing, in words: 'a list of labels'.
        column: name of the column.
        cell: the cell.
    """
    return NoLabelError(
        f"{expected} is missing",
        expected=f"{expected} in column '{column}'",
        found=value_with_type(cell),
        hint=f"{SKIP_HINT}; --label-column names another column; no label at all is []",
    )


def _first_names(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    return join_first(list(map(excerpt, names)), MAX_NAMES_SHOWN)
