"""Numbers: what a row of a regression has in a table, in a program and on disk.

In a table every number has a column of its own. Rows hold one JSON array. Once all rows
of a table are read, its numbers are rounded to float32 and have the shortest digits
that float32 needs. On disk they are float32.

N rows, K numbers of a row.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import (
    is_missing,
    unusable_cell_error,
    value_with_type,
)
from gaam_cache.common.errors import DataError
from gaam_cache.common.messages import excerpt
from gaam_cache.targets.base import SKIP_HINT, LabelColumns, MatrixTarget, NoLabelError
from gaam_cache.targets.classes import DECIMAL_NUMBER

LARGEST = float(np.finfo(np.float32).max)
NUM_STRATA = 10
ROWS_OF_STRATUM = 10
LARGEST_ROUNDING_ERROR = 1e-3
"""Root mean square of what float32 changes in a column, as a share of its standard
deviation. R2 then changes by about a millionth."""
EXPECTED = f"finite numbers up to {LARGEST:.3g}"


def num_strata(num_rows: int) -> int:
    """Number of ranges of numbers that each give rows to every part of a split.

    Few rows have few ranges, so that each part gets rows of each.
    """
    return min(NUM_STRATA, max(1, num_rows // ROWS_OF_STRATUM))


class Numbers(MatrixTarget):
    """The labels of a regression: K numbers a row.

    ``names`` are the columns that they come from. A label is the JSON array of a row's
    numbers.
    """

    kind = "numbers"
    task = "regression"
    dtype = "float32"
    array_words = "numbers, (N,) or (N, K)"

    def encode(self, labels: Sequence[str]) -> NDArray[np.float32]:
        """The numbers of every row, (N, K)."""
        values = [json.loads(label) for label in labels]
        return np.array(values, np.float32).reshape(len(labels), len(self.names))

    def encode_unlabelled(self, num_rows: int) -> NDArray[np.float32]:
        """NaN for every number, (N, K)."""
        return np.full((num_rows, len(self.names)), np.nan, np.float32)

    def decode(self, values: NDArray[Any]) -> list[str]:
        """The JSON arrays of these numbers, (N, K)."""
        return list(map(_to_json, np.asarray(values, np.float32)))

    def unknown_names(self, labels: Sequence[str]) -> set[str]:  # noqa: ARG002
        """None: numbers have no names."""
        return set()

    def summary(self, values: NDArray[Any]) -> dict[str, Any]:
        """Mean and standard deviation of every column, over N rows."""
        means = values.mean(0, dtype=np.float64).tolist()
        deviations = values.std(0, dtype=np.float64).tolist()
        return {
            "means": dict(zip(self.names, means, strict=True)),
            "standard_deviations": dict(zip(self.names, deviations, strict=True)),
        }

    def warnings(
        self,
        labels_by_split: Mapping[str, Sequence[str]],
        confirmed: Collection[str],  # noqa: ARG002 numbers have no odd names
    ) -> Iterator[str]:
        """Yield a line for every column with the same number in all rows of a split."""
        for split, labels in labels_by_split.items():
            values_NK = self.encode(labels)
            for name, value_N in zip(self.names, values_NK.T, strict=True):
                if len(value_N) > 1 and (value_N == value_N[0]).all():
                    yield (
                        f"every row of '{split}' has the same number in "
                        f"{excerpt(name)}: {value_N[0]}; there is nothing to explain"
                    )

    @classmethod
    def from_labels(
        cls,
        labels: Sequence[str],  # noqa: ARG003 they do not tell the names
        declared: tuple[str, ...] | None,
    ) -> Self:
        """The target of the declared columns.

        Args:
            labels: not used.
            declared: names of the columns of numbers, which every source declares; only
                a table without such columns has None.
        """
        return cls(declared or ())

    @classmethod
    def ranking(cls, labels: Sequence[str]) -> NDArray[np.int64]:
        """The rows in the order of their first numbers; equal numbers in row order."""
        return np.argsort(_first_numbers(labels), kind="stable")

    @classmethod
    def strata(cls, labels: Sequence[str]) -> Sequence[str]:
        """The stratum of every row: one of up to ten bins of its first number.

        Bins have about equally many rows, ``ROWS_OF_STRATUM`` or more; rows with equal
        numbers share a bin. The bin of a row is ``bins * less // N``, where ``less``
        rows have a smaller number.
        """
        value_N = _first_numbers(labels)
        num_less_N = np.searchsorted(np.sort(value_N), value_N, side="left")
        num_bins = num_strata(len(labels))
        bin_N = num_bins * num_less_N // max(1, len(labels))
        return list(map(str, bin_N.tolist()))

    @classmethod
    def read(cls, record: Mapping[str, Any], columns: LabelColumns) -> str:
        """The label of a record: the JSON array of its numbers, one for each column.

        The numbers have all their digits: ``rounded`` rounds those of all rows.
        """
        return json.dumps([_number_of(record[name], name) for name in columns.names])

    @classmethod
    def rounded(
        cls, labels: Sequence[str], columns: LabelColumns, origin: str
    ) -> list[str]:
        """Round the numbers of all rows to float32; see ``check_matrix`` for errors."""
        target = cls(columns.names)
        values = [json.loads(label) for label in labels]
        values_NK = np.array(values, np.float64).reshape(target.shape(len(labels)))
        return target.decode(target.check_matrix(values_NK, origin))

    @classmethod
    def declared_names(cls, columns: LabelColumns) -> tuple[str, ...]:
        """The label columns: each is the name of a number."""
        return columns.names

    @classmethod
    def claims_array(cls, dtype: str, num_axes: int) -> bool:
        """Whether an array has floating-point numbers, one or several a row."""
        return dtype.startswith(("float", "bfloat")) and num_axes in (1, 2)

    def check_matrix(self, values_NK: NDArray[Any], where: str) -> NDArray[np.float32]:
        """Convert numbers (N, K) to float32, the type that is stored.

        Args:
            values_NK: the numbers that a program passes.
            where: the name of the array, for messages.

        Raises:
            DataError: a number is NaN, infinite, or too large for float32; or the
                numbers of a column lie too close together for float32.
        """
        # a comparison with NaN is false, so that its negation finds NaN too
        is_bad_NK = ~(np.abs(values_NK.astype(np.float64)) <= LARGEST)
        if is_bad_NK.any():
            index = tuple(np.argwhere(is_bad_NK)[0].tolist())
            raise DataError(
                "a label is not a finite number",
                expected=EXPECTED,
                found=str(values_NK[index]),
                where=f"{where}, {self.location_of(index)}",
                hint="correct or remove the row",
            )
        rounded_NK = values_NK.astype(np.float32)
        for name, value_N, rounded_N in zip(
            self.names, values_NK.T, rounded_NK.T, strict=True
        ):
            _check_rounding(
                value_N.astype(np.float64), rounded_N, f"{where}, column '{name}'"
            )
        return rounded_NK


def _first_numbers(labels: Sequence[str]) -> NDArray[np.float64]:
    """The first number of every row, (N,)."""
    return np.array([json.loads(label)[0] for label in labels], np.float64)


def _check_rounding(
    value_N: NDArray[np.float64], rounded_N: NDArray[np.float32], where: str
) -> None:
    """Refuse a column whose numbers float32 changes noticeably.

    Such numbers have a large offset, such as seconds since 1970. A column of one number
    has no spread with which a change compares, so it is not examined.

    Args:
        value_N: the numbers of the column.
        rounded_N: the same numbers in float32.
        where: the column, for messages.
    """
    # numbers that differ in the last digits of float64 alone are one number
    largest_noise = 4 * np.finfo(np.float64).eps * np.abs(value_N).max(initial=0)
    if not len(value_N) or np.ptp(value_N) <= largest_noise:
        return
    # shares of the range, so that no square leaves the range of float64
    range_of_column = np.ptp(value_N)
    error_N = np.abs(rounded_N - value_N) / range_of_column
    error_share = np.sqrt(np.mean(error_N**2)) / (value_N / range_of_column).std()
    if error_share <= LARGEST_ROUNDING_ERROR:
        return
    row = int(error_N.argmax())
    raise DataError(
        "numbers lie too close together for float32, in which labels are stored",
        expected=f"a rounding error (root mean square) of at most "
        f"{LARGEST_ROUNDING_ERROR:.1%} of the standard deviation",
        found=f"{error_share:.1%}: {value_N[row]} becomes {float(rounded_N[row])}",
        where=where,
        hint="subtract a number, such as the mean, from the column first",
    )


def _to_json(value_K: NDArray[np.float32]) -> str:
    """The JSON array of a row's numbers, in the shortest digits that float32 needs."""
    # -0.0 and 0.0 are one number: the sum turns -0.0 into 0.0
    positive_zero_K = value_K + np.float32(0)
    return f"[{','.join(map(_shortest_digits, positive_zero_K))}]"


def _shortest_digits(value: np.float32) -> str:
    """The shortest decimal number that float32 rounds to ``value``, as Python's text.

    The text is hashed. Versions of NumPy agree about the digits, but one writes
    16777216.0 and another 1.6777216e+07.
    """
    return repr(float(np.format_float_scientific(value, unique=True)))


def _number_of(cell: object, column: str) -> float:
    """The number in a cell.

    Raises:
        NoLabelError: the number is missing; NaN counts as missing.
        DataError: the cell holds something else, or a number that float32 lacks.
    """
    if is_missing(cell):
        raise NoLabelError(
            "a number is missing",
            expected=f"a number in column '{column}'",
            found=value_with_type(cell),
            hint=f"{SKIP_HINT}; --label-column names another column",
        )
    value = cell
    if isinstance(cell, str):
        # ``float`` alone would accept other texts too, such as 1_000
        is_infinite = cell.strip().lstrip("+-").casefold() in ("inf", "infinity")
        if not (is_infinite or DECIMAL_NUMBER.fullmatch(cell)):
            raise _not_a_number_error(cell, column)
        value = float(cell)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not_a_number_error(cell, column)
    # an integer may be larger than every float
    if abs(value) > LARGEST or not math.isfinite(value):
        raise DataError(
            "a number is not finite, or too large",
            expected=f"{EXPECTED} in column '{column}'",
            found=value_with_type(cell),
            hint="correct or remove the row",
        )
    return float(value)


def _not_a_number_error(cell: object, column: str) -> DataError:
    """The error for a cell of a number column that holds no number."""
    return unusable_cell_error(
        "a label is not a number",
        cell,
        f"a number in column '{column}'",
        "--label-column",
    )
