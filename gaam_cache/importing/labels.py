"""Labels of arrays that other programs made: which task they are for, and their text.

N rows, K columns of labels.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, DataError, GaamWarning
from gaam_cache.common.messages import brief
from gaam_cache.config import AUTO, ImportConfig
from gaam_cache.importing.arrays import STRINGS, Array, SplitArrays
from gaam_cache.store.dtypes import as_float32
from gaam_cache.targets.base import (
    CLASSIFICATION,
    MatrixTarget,
    Target,
    target_class,
    target_classes,
)
from gaam_cache.targets.classes import (
    Classes,
    names_of_array,
    refuse_fractions,
    refuse_quantities,
)


class LabelArrays(ABC):
    """Reads the arrays of labels of all splits.

    Args:
        target: what the labels of the training rows are.
    """

    def __init__(self, target: Target) -> None:
        self.target = target

    @abstractmethod
    def read(self, split: str, array: Array) -> list[str]:
        """The label of every row of a split as text; DataError if one is unusable."""


class ClassArrays(LabelArrays):
    """Arrays of whole numbers or texts, one a row.

    Args:
        target: the classes.
        class_by_label: value in the arrays -> name of its class.
    """

    def __init__(self, target: Classes, class_by_label: Mapping[Any, str]) -> None:
        super().__init__(target)
        self._class_by_label = class_by_label

    def read(self, split: str, array: Array) -> list[str]:
        """The class of every row; DataError for a label that is no class."""
        known_labels = ", ".join(map(repr, self._class_by_label))
        labels = array.read_one_per_row(
            f"labels of '{split}'",
            is_valid=self._class_by_label.__contains__,
            expected=brief(f"one of {known_labels}", 200),
        )
        return [self._class_by_label[label] for label in labels]


class MatrixArrays(LabelArrays):
    """Arrays with K numbers a row: quantities, or 0 and 1 for each of K labels.

    Args:
        target: the names of the K columns, and how their numbers are stored.
    """

    target: MatrixTarget

    def __init__(self, target: MatrixTarget) -> None:
        super().__init__(target)
        self._num_columns = len(target.names)

    def read(self, split: str, array: Array) -> list[str]:
        """The label of every row as text: the JSON of its numbers or label names."""
        values_NK = _read_matrix(array, type(self.target))
        if values_NK.shape[1] != self._num_columns:
            raise DataError(
                f"the labels of '{split}' have another number of columns",
                expected=f"{self._num_columns:,}: {', '.join(self.target.names)}",
                found=f"{array.dtype} {array.shape}",
                where=array.where,
                hint="give all splits the columns of the training rows, in their order",
            )
        return self.target.decode(self.target.check_matrix(values_NK, array.where))


def read_target(
    arrays_by_split: Mapping[str, SplitArrays], config: ImportConfig
) -> LabelArrays:
    """Find out what the labels are: the task, and its classes, columns or labels.

    The labels of 'train' decide, or those of the first split with labels.

    Args:
        arrays_by_split: split -> its arrays.
        config: it may name the task and the classes, columns or labels.

    Raises:
        ConfigError: no split has labels, or the names do not fit.
        DataError: the labels cannot be of that task.
    """
    labels_by_split = {
        split: arrays.labels
        for split, arrays in arrays_by_split.items()
        if arrays.labels is not None
    }
    if not labels_by_split:
        raise ConfigError(
            "no split has labels", expected="at least one split with labels"
        )
    first_labels = next(iter(labels_by_split.values()))
    array = labels_by_split.get("train", first_labels)
    chosen_class = _choose_target_class(array, config)
    names = config.target_names or config.class_names
    if not issubclass(chosen_class, MatrixTarget):
        return _read_classes(array, names, config.task)
    values_NK = _read_matrix(array, chosen_class)
    if config.task == AUTO and array.dtype != "bool":
        _question_whole_numbers(array, values_NK)
    num_columns = values_NK.shape[1]
    return MatrixArrays(chosen_class.of_matrix(num_columns, names))


def task_of_labels(values: Any) -> str:
    """The task that labels of a program are for, if the user names none.

    Args:
        values: an array of labels, as ``write`` takes it.

    Raises:
        DataError: they may be for several tasks, such as 0 and 1 in several columns, or
            for none.

    Warns:
        GaamWarning: whole numbers are stored as fractions.
    """
    # a placeholder: the settings require a file, but none is read
    config = ImportConfig(files=("arrays of a program",))
    labels = Array("targets", values)
    arrays = SplitArrays(states=[], labels=labels, columns={})
    return read_target({"train": arrays}, config).target.task


def _choose_target_class(array: Array, config: ImportConfig) -> type[Target]:
    """The class of targets of an array of labels: the kind of labels that they are.

    It is that of the task that the user names. Else it is that of the only task that
    the type and the shape of the array fit, or classes.

    Raises:
        DataError: the user has to name the task.
    """
    if config.task != AUTO:
        return target_class(config.task)
    for known_class in target_classes().values():
        if known_class.claims_array(array.dtype, len(array.shape)):
            return known_class
    if len(array.shape) == 2:
        raise _unclear_task_error(array)
    return target_class(CLASSIFICATION)


def _unclear_task_error(array: Array) -> DataError:
    """The error for labels in several columns that may be for several tasks."""
    return DataError(
        f"the array '{array.name}' has several numbers a row, and no classes",
        expected="classes (N,); or numbers, or 0 and 1, and the task",
        found=f"{array.dtype} {array.shape}",
        where=array.where,
        hint="--task multi-label (0 and 1), or --task regression; in Python task=; "
        "of one-hot classes pass labels.argmax(1)",
    )


def _read_matrix(array: Array, chosen_class: type[MatrixTarget]) -> NDArray[Any]:
    """Read an array of labels as a matrix (N, K); an array (N,) becomes one column.

    Args:
        array: the labels.
        chosen_class: the kind of labels that they must be.

    Raises:
        DataError: the array has a type or a number of axes that such labels never have.
    """
    has_known_dtype = array.dtype.startswith(chosen_class.array_dtypes)
    if len(array.shape) not in (1, 2) or not has_known_dtype:
        raise DataError(
            f"the array '{array.name}' cannot be labels of {chosen_class.task}",
            expected=chosen_class.array_words,
            found=f"{array.dtype} {array.shape}",
            where=array.where,
            hint="name another array with --labels, or another task with --task",
        )
    values: NDArray[Any] = array.read()
    if array.dtype == "bfloat16":
        values = as_float32(values)
    if values.ndim == 1:
        values = values[:, None]
    return values


def _question_whole_numbers(array: Array, values_NK: NDArray[Any]) -> None:
    """Question numbers that may be classes: whole numbers of a type of fractions.

    The caller asks only where the user names no task, and the type says regression.

    Args:
        array: the labels.
        values_NK: their values.

    Raises:
        DataError: several columns hold 0 and 1 alone: one-hot classes, or sets of
            labels.

    Warns:
        GaamWarning: other whole numbers are taken for quantities.
    """
    are_whole = (values_NK == np.floor(values_NK)).all()
    if not are_whole or not np.isfinite(values_NK).all():
        return
    if values_NK.shape[1] > 1 and np.isin(values_NK, (0, 1)).all():
        raise _unclear_task_error(array)
    warnings.warn(
        f"the labels '{array.name}' are whole numbers stored as {array.dtype}: "
        "they are taken for numbers (regression); of classes pass "
        "labels.astype(int), one a row",
        GaamWarning,
        stacklevel=2,
    )


def _read_classes(array: Array, given_names: tuple[str, ...], task: str) -> ClassArrays:
    """Find the classes in the labels of the training rows.

    The result reads the labels of all splits; it refuses a label that is no class.

    Args:
        array: the labels of the training rows.
        given_names: the names that the user gives to the classes; may be empty.
        task: the task that the user names. With 'auto', texts that are quantities, such
            as prices, are refused.
    """
    refuse_fractions(array.name, array.dtype, array.shape, array.where)
    labels = array.read_one_per_row(
        "labels",
        # any whole number or string may be the label of a class
        is_valid=lambda label: True,
        expected="whole numbers or strings",
    )

    has_strings = array.dtype == STRINGS
    if has_strings and task == AUTO:
        refuse_quantities(labels, array.where)
    names = names_of_array(labels, given_names, are_texts=has_strings)
    class_by_label: dict[Any, str] = dict(enumerate(names))
    if has_strings:
        class_by_label = {name: name for name in names}
    return ClassArrays(Classes(names), class_by_label)
