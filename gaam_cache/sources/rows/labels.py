"""Reads the label of a record, and finds out what kind of labels a table has."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gaam_cache.common.cells import is_missing
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import AUTO, ExtractConfig
from gaam_cache.targets.base import (
    CLASSIFICATION,
    NO_LABEL,
    DoubtfulLabelError,
    LabelColumns,
    NoLabelError,
    Target,
    target_class,
    target_classes,
)


class LabelReader:
    """Reads the labels of one split.

    With the task 'auto' the first cell that is not empty decides the task.

    Args:
        config: the extraction.
        column_names: the label columns; none for a split without labels.
        declared_names: the classes or labels that the table declares, in order; None if
            it declares none.
    """

    def __init__(
        self,
        config: ExtractConfig,
        column_names: tuple[str, ...],
        declared_names: tuple[str, ...] | None,
    ) -> None:
        if declared_names is not None and config.strip_labels:
            declared_names = _stripped_names(declared_names)
        self.columns = LabelColumns(
            names=column_names,
            declared_names=declared_names,
            strip=config.strip_labels,
            confirmed_classes=config.odd_classes,
            separator=config.label_separator,
        )
        self._target_class: type[Target] | None = None
        if config.task != AUTO:
            self._target_class = target_class(config.task)
        self.may_be_quantities = config.task == AUTO and declared_names is None
        """Whether labels that are numbers may be another task than classification. They
        are classes if the user says so, or if the table declares its classes."""

    @property
    def has_labels(self) -> bool:
        return bool(self.columns.names)

    @property
    def is_classification(self) -> bool:
        return self.target_class.task == CLASSIFICATION

    @property
    def target_class(self) -> type[Target]:
        """The kind of labels; classes as long as no label was read."""
        return self._target_class or target_class(CLASSIFICATION)

    @property
    def declared_names(self) -> tuple[str, ...] | None:
        """Names of the target that the table declares; None if it declares none."""
        return self.target_class.declared_names(self.columns)

    def read(self, record: Mapping[str, Any]) -> str:
        """The label of a record; ``NO_LABEL`` in a split without labels.

        If the task is not known yet, this cell decides it, and with it the class of
        targets that reads this cell and all later ones.

        Raises:
            DataError: the label is missing, or cannot be used.
        """
        if not self.columns.names:
            return NO_LABEL
        if self._target_class is None:
            # with several label columns the user has to name the task
            [label_column] = self.columns.names
            self._choose_target_class(record[label_column])
        return self.target_class.read(record, self.columns)

    def lacks_label(self, record: Mapping[str, Any]) -> bool:
        """Whether a record has no label, or lacks a part of it: one of its numbers.

        False for a label that cannot be used, and in a split without labels.
        """
        try:
            self.read(record)
        except NoLabelError as error:
            return not isinstance(error, DoubtfulLabelError)
        except (DataError, UnicodeEncodeError):
            return False
        return False

    def rounded(self, labels: Sequence[str], origin: str) -> list[str]:
        """The labels of all rows of a table, rounded to what is stored.

        Args:
            labels: the label of every row, as ``read`` returns it.
            origin: where the rows are from, for messages.

        Raises:
            DataError: rounding would change the labels noticeably.
        """
        if not self.has_labels:
            return list(labels)
        return self.target_class.rounded(labels, self.columns, origin)

    def _choose_target_class(self, cell: object) -> None:
        """Choose the target by a cell of the label column; a missing one decides none.

        The target stays as it is chosen here for all later records.
        """
        if cell is None or (isinstance(cell, str | float) and is_missing(cell)):
            return
        self._target_class = target_class(CLASSIFICATION)
        # at most one kind of labels claims a cell; cells of classes are claimed by none
        for known_class in target_classes().values():
            if known_class.claims_cell(cell, self.columns):
                self._target_class = known_class


def _stripped_names(names: Sequence[str]) -> tuple[str, ...]:
    """Declared names without white space around them; ConfigError if two become one."""
    stripped_names = tuple(name.strip() for name in names)
    counts = Counter(stripped_names)
    repeated = [name for name in counts if counts[name] > 1]
    if repeated:
        raise ConfigError(
            "declared classes differ in white space alone",
            found=", ".join(repr(n) for n in names if n.strip() == repeated[0]),
            hint="leave --set strip-labels=true out, or rename the classes",
        )
    return stripped_names
