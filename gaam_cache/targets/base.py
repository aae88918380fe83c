"""What every target has: its names, its labels on disk, and how it reads cells.

A row's label is one string wherever rows travel. A class is its own name. Numbers and
sets of labels are JSON arrays without white space: ``[2.8,3.1]``, ``["a","b"]``.

N rows, K columns of a label on disk.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, DataError

TARGETS = "gaam_cache.targets"
CLASSIFICATION = "classification"
NO_LABEL = ""
"""Label of every row of a split without labels; no class has this name."""
SKIP_HINT = "--set skip-unlabelled=true leaves such rows out"


class NoLabelError(DataError):
    """A label is missing, or is a word that often stands for a missing one."""


class DoubtfulLabelError(NoLabelError):
    """A label is a negative number: a class, or a code for a missing label.

    ``skip_unlabelled`` leaves out no such row: -1, 0 and 1 may be three classes.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelColumns:
    """The columns of a table that hold labels, and how their cells are read."""

    names: tuple[str, ...]
    declared_names: tuple[str, ...] | None = None
    """Classes or labels that the data set declares, in order; None if none."""
    strip: bool = False
    """Whether white space around names is removed."""
    confirmed_classes: Collection[str] = ()
    """Names that often mean a missing label, such as 'nan', and that the user has
    confirmed as classes."""
    separator: str | None = None
    """What separates the labels of a text; None for JSON lists."""


@dataclass(frozen=True)
class Target(ABC):
    """The kind of labels that is predicted, and how they are stored.

    A row's label is one string wherever rows travel: the name of its class, or a JSON
    array of its numbers or of the names of its labels.

    Args:
        names: of the classes, of the columns of numbers, or of the labels, in order.
    """

    kind: ClassVar[str]
    """Its name in the plan of a cache; the name of its file."""
    task: ClassVar[str]
    """Name of the task that predicts it."""
    array_key: ClassVar[str] = "label"
    """Name of the array of labels in a shard."""
    dtype: ClassVar[str]
    """Type of this array, as a receipt names it."""
    names: tuple[str, ...]

    @functools.cached_property
    def _position_by_name(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def shape(self, num_rows: int) -> tuple[int, ...]:
        """Shape of the labels of some rows, (N, K)."""
        return (num_rows, len(self.names))

    @abstractmethod
    def encode(self, labels: Sequence[str]) -> NDArray[Any]:
        """The labels of N rows as they are stored: an array of ``shape(N)``.

        Raises:
            KeyError: a label has a name that the target lacks.
        """

    @abstractmethod
    def encode_unlabelled(self, num_rows: int) -> NDArray[Any]:
        """The array to store for rows without labels, an array of ``shape(N)``."""

    @abstractmethod
    def decode(self, values: NDArray[Any]) -> list[str]:
        """The label of every row whose stored values these are; undoes ``encode``."""

    @abstractmethod
    def unknown_names(self, labels: Sequence[str]) -> set[str]:
        """The names that occur in the labels of rows, but are not in ``names``."""

    @abstractmethod
    def summary(self, values: NDArray[Any]) -> dict[str, Any]:
        """Figures of the labels of rows for people, such as the rows of each class.

        Args:
            values: the labels as they are stored.

        Returns:
            Name of a figure -> JSON value.
        """

    @abstractmethod
    def warnings(
        self, labels_by_split: Mapping[str, Sequence[str]], confirmed: Collection[str]
    ) -> Iterator[str]:
        """Yield warnings about the labels of all labelled splits.

        Args:
            labels_by_split: split -> the label of every row.
            confirmed: names that the user has confirmed although they are odd.
        """

    @classmethod
    @abstractmethod
    def from_labels(
        cls, labels: Sequence[str], declared: tuple[str, ...] | None
    ) -> Self:
        """The target that the labels of the training rows have.

        Args:
            labels: the label of every training row.
            declared: names that the source declares; None or empty if it declares none.
        """

    @classmethod
    def ranking(cls, labels: Sequence[str]) -> NDArray[np.int64] | None:  # noqa: ARG003
        """The rows in the order of their numbers, (N,); None for labels of classes.

        A test fraction of numbers is spread evenly over the ranking.
        """
        return None

    @classmethod
    @abstractmethod
    def strata(cls, labels: Sequence[str]) -> Sequence[str]:
        """The stratum of every row.

        Splits and limits take the same share of every stratum. Of classes, the strata
        are the classes.
        """

    @classmethod
    @abstractmethod
    def read(cls, record: Mapping[str, Any], columns: LabelColumns) -> str:
        """The label of a record of a table.

        Raises:
            NoLabelError: the label is missing.
            DataError: a cell cannot be such a label.
        """

    @classmethod
    def rounded(
        cls,
        labels: Sequence[str],
        columns: LabelColumns,  # noqa: ARG003 for messages of numbers
        origin: str,  # noqa: ARG003
    ) -> list[str]:
        """Round the labels of all rows of a table to what is stored.

        Names are stored as they are.

        Args:
            labels: the label of every row, as ``read`` returns it.
            columns: the columns that they come from.
            origin: where the rows are from, for messages.

        Raises:
            DataError: rounding would change the labels noticeably.
        """
        return list(labels)

    @classmethod
    def declared_names(cls, columns: LabelColumns) -> tuple[str, ...] | None:
        """The names that a table declares for such a target; None if it has none."""
        return columns.declared_names

    @classmethod
    def claims_cell(cls, cell: object, columns: LabelColumns) -> bool:  # noqa: ARG003
        """Whether a cell of a single label column can be a label of this kind only."""
        return False

    @classmethod
    def claims_array(cls, dtype: str, num_axes: int) -> bool:  # noqa: ARG003
        """Whether an array of labels can be of this kind only.

        Args:
            dtype: name of its type, such as 'float32'.
            num_axes: number of its axes.
        """
        return False


class MatrixTarget(Target):
    """A target whose label is K numbers a row, so that programs pass matrices."""

    array_dtypes: ClassVar[tuple[str, ...]] = ("float", "bfloat", "int", "uint")
    """How the names of the types of such matrices may begin."""
    array_words: ClassVar[str]
    """What programs may pass for such a matrix, in words for messages."""

    @abstractmethod
    def check_matrix(self, values_NK: NDArray[Any], where: str) -> NDArray[Any]:
        """Check a matrix of labels, and convert it to the type that is stored.

        Args:
            values_NK: what a program passes, (N, K).
            where: the name of the array, for messages.

        Raises:
            DataError: a value cannot be stored; the message names its row.
        """

    def location_of(self, index: tuple[int, ...]) -> str:
        """Row and column of a value in words, for messages.

        Args:
            index: row and column of the value, from 0.
        """
        row, column = index
        return f"row {row + 1}, column '{self.names[column]}'"

    @classmethod
    def of_matrix(cls, num_columns: int, given_names: tuple[str, ...]) -> Self:
        """The target of matrices (N, K).

        Args:
            num_columns: the number K of columns.
            given_names: names that the user gives to the columns; empty for 0, 1, ...

        Raises:
            ConfigError: there are more or fewer names than columns, or names are not
                distinct.
            DataError: there is no column.
        """
        if num_columns == 0:
            raise DataError(
                "labels have no columns",
                expected="one column at least, (N, K)",
                found="(N, 0)",
            )
        names = given_names or tuple(map(str, range(num_columns)))
        check_names(names, num_columns)
        return cls(names)


def check_names(names: Sequence[str], num_columns: int) -> None:
    """Refuse names that are not one for every column, distinct and not empty."""
    has_name_per_column = len(names) == num_columns
    are_distinct = len(set(names)) == len(names)
    if has_name_per_column and are_distinct and "" not in names:
        return
    raise ConfigError(
        "target names must be one for each column of the labels, distinct, none empty",
        expected=f"{num_columns:,} names",
        found=f"{len(names):,}: {', '.join(names)}",
        hint="--set target-name=NAME once for each column; in Python target_names=",
    )


@functools.cache
def target_classes() -> dict[str, type[Target]]:
    """Task -> the class of targets that it predicts, for all that are installed."""
    classes: list[type[Target]] = [
        plugins.load(TARGETS, name, kind="target") for name in plugins.names(TARGETS)
    ]
    return {target_class.task: target_class for target_class in classes}


def target_class(task: str) -> type[Target]:
    """The class of targets that a task predicts."""
    return target_classes()[task]


def target_of_kind(kind: str, names: Sequence[str]) -> Target:
    """The target that a plan describes.

    Args:
        kind: the name of its class in plans, such as 'label-sets'.
        names: of its classes, columns or labels.

    Raises:
        ValueError: no installed class of targets has this kind.
    """
    for known_class in target_classes().values():
        if known_class.kind == kind:
            return known_class(tuple(names))
    raise ValueError(f"unknown kind of target {kind!r}")
