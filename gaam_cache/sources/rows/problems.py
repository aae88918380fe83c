"""Rows that cannot be used: all are counted, and the first ones named in one error."""

from collections import Counter
from collections.abc import Sequence

from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.rows.cells import NoLabelError, refuse_quantities

SHOWN = 3  # unusable rows that an error names


class RowProblems:
    """The unusable rows of a split."""

    def __init__(
        self,
        split: str,
        origin: str,
        config: ExtractConfig,
        class_names: tuple[str, ...] | None,
    ) -> None:
        self.origin = origin
        self._split = split
        self._config = config
        self._class_names = class_names
        self._count = 0
        self._first = list[tuple[str, DataError]]()
        self._missing_labels = Counter[str]()  # by what stands in place of the label

    def add(self, location: str, error: DataError | UnicodeEncodeError) -> None:
        """Count the row at this location of its table, and why it cannot be used."""
        self._count += 1
        if not isinstance(error, DataError):
            # such a text can neither be hashed nor tokenized
            error = DataError(
                "a row contains half a character (an unpaired surrogate)",
                found=str(error),
            )
        if isinstance(error, NoLabelError):
            self._missing_labels[error.details["found"]] += 1
        if len(self._first) < SHOWN:
            self._first.append((location, error))

    def check(
        self, labels: Sequence[str], total: int, *, sampled: bool = False
    ) -> None:
        """Raise one error for all rows, if some or their labels together are unusable.

        Args:
            labels: those of the usable rows.
            total: number of all rows.
            sampled: whether a limit chose the rows.
        """
        # a wrong label column explains more than the rows that it makes unusable
        if self._class_names is None:
            column = self._config.label_column
            refuse_quantities(
                labels,
                f"{self.origin}, column '{column}' of '{self._split}'",
                sampled=sampled,
                odd_classes=self._config.odd_classes,
            )
        if self._first:
            raise self._unusable_rows(total)

    def _unusable_rows(self, total: int) -> DataError:
        """The error of the first unusable row, which names the next ones too."""
        location, error = self._first[0]
        # where no row has a label, the split is at fault and not its rows
        if self._missing_labels.total() == total:
            return self._no_labels(location, total)

        error.details["where"] = f"{self.origin}, {location}"
        if self._count > 1:
            lines = [f"{row}: {problem.reason}" for row, problem in self._first]
            if self._count > SHOWN:
                lines.append(f"and {self._count - SHOWN:,} more")
            error.message = (
                f"{self._count:,} of {total:,} rows cannot be used: {error.message}"
            )
            error.details["found"] = "\n".join(lines)
        return error

    def _no_labels(self, location: str, total: int) -> DataError:
        """The error for a split in which no row has a label."""
        cells = [
            f"{cell} in {count:,} rows"
            for cell, count in self._missing_labels.most_common(SHOWN)
        ]
        return DataError(
            f"'{self._split}' has no labels",
            expected="a class for each of its rows, or --set unlabelled for the split",
            found=f"of {total:,} rows: {', '.join(cells)}",
            where=f"{self.origin}, {location}",
            hint=self._no_labels_hint(),
        )

    def _no_labels_hint(self) -> str:
        """A remedy: the split that decoders are trained on cannot do without labels."""
        splits = self._config.splits
        training_split = "train" if "train" in splits else splits[0]
        if self._split == training_split or self._config.test_fraction is not None:
            return (
                "--label-column names the column of the classes; rows without classes "
                "are for gaam predict"
            )
        remaining = [f"--split {name}" for name in splits if name != self._split]
        return (
            f"--set unlabelled={self._split} keeps its rows to predict on; "
            f"{' '.join(remaining)} alone leaves them out"
        )
