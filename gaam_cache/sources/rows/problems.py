"""Rows that cannot be used.

``RowProblems`` counts all unusable rows of a split and raises one error for them. The
error names the first few.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.rows.labels import LabelReader
from gaam_cache.targets.base import NoLabelError
from gaam_cache.targets.classes import refuse_quantities

NUM_EXAMPLES = 3  # unusable rows, or values in place of labels, that an error names


class _UnusableRow(NamedTuple):
    """A row that cannot be used."""

    location: str  # in its table: 'line 7'
    error: DataError  # why


class RowProblems:
    """Collects the unusable rows of a split.

    Args:
        split: name of the split.
        origin: where its rows are from, for messages.
        config: the extraction.
        label_reader: reads the labels of the split.
    """

    def __init__(
        self,
        split: str,
        origin: str,
        config: ExtractConfig,
        label_reader: LabelReader,
    ) -> None:
        self.origin = origin
        self._split = split
        self._config = config
        self._label_reader = label_reader
        self._num_unusable_rows = 0
        self._first_unusable_rows = list[_UnusableRow]()
        # word for a missing label, such as 'nan' -> number of rows that have it
        self._num_rows_by_missing_word = Counter[str]()

    def add(self, location: str, error: DataError | UnicodeEncodeError) -> None:
        """Record that a row cannot be used.

        Args:
            location: of the row in its table, such as 'line 7'.
            error: why it cannot be used.
        """
        self._num_unusable_rows += 1
        if not isinstance(error, DataError):
            # such a text can neither be hashed nor tokenized
            error = DataError(
                "a row contains half a character (an unpaired surrogate)",
                found=str(error),
            )
        if isinstance(error, NoLabelError):
            # 'found' is the text of the cell in place of a label
            self._num_rows_by_missing_word[error.details["found"]] += 1
        if len(self._first_unusable_rows) < NUM_EXAMPLES:
            self._first_unusable_rows.append(_UnusableRow(location, error))

    def refuse_unusable_rows(
        self, labels: Sequence[str], num_rows: int, *, sampled: bool = False
    ) -> None:
        """Raise one error if the labels are quantities or if a row is unusable.

        Args:
            labels: the labels of the usable rows.
            num_rows: the number of all rows, usable or not.
            sampled: whether ``--limit`` chose the rows.

        Raises:
            DataError: the labels are quantities rather than classes, or at least one
                row is unusable.
        """
        # The label column may be the wrong one: its cells may be prices or scores. That
        # would explain the unusable rows, so it is reported first.
        reader = self._label_reader
        if reader.has_labels and reader.is_classification and reader.may_be_quantities:
            [column] = reader.columns.names
            refuse_quantities(
                labels,
                f"{self.origin}, column '{column}' of '{self._split}'",
                sampled=sampled,
                confirmed_classes=self._config.odd_classes,
            )
        if self._first_unusable_rows:
            raise self._unusable_rows_error(num_rows)

    def _unusable_rows_error(self, num_rows: int) -> DataError:
        """The error of the first unusable row; it names the next unusable rows too."""
        first_row = self._first_unusable_rows[0]
        # where no row has a label, the split is at fault and not its rows
        num_rows_without_label = self._num_rows_by_missing_word.total()
        if num_rows_without_label == num_rows:
            return self._no_labels_error(first_row.location, num_rows)

        error = first_row.error
        error.details["where"] = f"{self.origin}, {first_row.location}"
        if self._num_unusable_rows > 1:
            lines = [
                f"{row.location}: {row.error.reason}"
                for row in self._first_unusable_rows
            ]
            if self._num_unusable_rows > NUM_EXAMPLES:
                lines.append(f"and {self._num_unusable_rows - NUM_EXAMPLES:,} more")
            error.message = (
                f"{self._num_unusable_rows:,} of {num_rows:,} rows cannot be used: "
                f"{error.message}"
            )
            error.details["found"] = "\n".join(lines)
        return error

    def _no_labels_error(self, first_location: str, num_rows: int) -> DataError:
        """The error for a split in which no row has a usable label.

        It names the values that stand in place of labels, the most frequent first.

        Args:
            first_location: the location of its first row.
            num_rows: the number of its rows.
        """
        most_common = self._num_rows_by_missing_word.most_common(NUM_EXAMPLES)
        words = [f"{word} in {count:,} rows" for word, count in most_common]
        return DataError(
            f"'{self._split}' has no labels",
            expected="a label for each of its rows, or --set unlabelled for the split",
            found=f"of {num_rows:,} rows: {', '.join(words)}",
            where=f"{self.origin}, {first_location}",
            hint=self._no_labels_hint(),
        )

    def _no_labels_hint(self) -> str:
        """What the user can do about a split without labels.

        Decoders are trained on 'train', or else on the first split. That split needs
        labels; any other split can be used without them.
        """
        splits = self._config.splits
        training_split = "train" if "train" in splits else splits[0]
        # With a test fraction, all rows are read under one name, which may be 'test'.
        # They are divided afterwards, and some become training rows.
        becomes_training_rows = self._config.test_fraction is not None
        if self._split == training_split or becomes_training_rows:
            return (
                "--label-column names the column of the labels; rows without labels "
                "are for gaam predict"
            )
        remaining = [f"--split {name}" for name in splits if name != self._split]
        return (
            f"--set unlabelled={self._split} keeps its rows to predict on; "
            f"{' '.join(remaining)} alone leaves them out"
        )
