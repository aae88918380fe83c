"""Some rows of a table with all that stands in them, and how other formats have it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gaam_cache.errors import DataError
from gaam_cache.format.digest import digest_of_stream
from gaam_cache.messages import excerpt

if TYPE_CHECKING:
    import pyarrow

CHUNK_ROWS = 2048
"""Rows of a piece: a pure function of the row number, so that what goes on is what never stopped.
As many as are encoded together (``Predictor.stream``); a piece of 4 kB texts is 8 MB."""
Input = str | DataError | None
"""What of a row is encoded, a text or a path; or why it cannot be; None where nothing is there."""


class Chunk(ABC):
    """Rows that follow each other.

    Args:
        places: where each stands ('line 7').
        inputs: of every row.
        states: what else decides what a row is, such as the state of the file that it names.
    """

    def __init__(
        self, places: Sequence[str], inputs: Sequence[Input], states: Sequence[bytes] = ()
    ) -> None:
        self.places = places
        self.inputs = inputs
        self._states = states

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.inputs)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that stands in the rows."""

        def parts() -> Iterator[bytes]:
            for count, contents in enumerate((self._contents(), self._states)):
                for content in contents:
                    yield bytes([count]) + len(content).to_bytes(8, "little") + content

        return digest_of_stream(parts())

    @abstractmethod
    def _contents(self) -> Iterator[bytes]:
        """All of every row."""

    @abstractmethod
    def fields(self) -> Iterator[list[str]]:
        """Every row as CSV has it; what is null is empty.

        Raises:
            DataError: a value that CSV does not have.
        """

    @abstractmethod
    def members(self) -> Iterator[str]:
        """Every row as what stands between the braces of a JSON object.

        Raises:
            DataError: a value that JSON does not have.
        """

    @abstractmethod
    def arrays(self, schema: pyarrow.Schema) -> list[pyarrow.Array]:
        """Every column of the table.

        Args:
            schema: of the table.

        Raises:
            DataError: a value that its type does not have.
        """


class FieldsChunk(Chunk):
    """Rows of strings, as CSV has them.

    Args:
        names: of the columns.
        rows: one string per column.
        rest: see ``Chunk``.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[str]], *rest: Any) -> None:
        super().__init__(*rest)
        self._keys = names
        self._rows = rows

    def _contents(self) -> Iterator[bytes]:
        return (field.encode() for row in self._rows for field in row)

    def fields(self) -> Iterator[list[str]]:
        """As they are."""
        return map(list, self._rows)

    def members(self) -> Iterator[str]:
        """Strings all."""
        import json

        keys = [json.dumps(name, ensure_ascii=False) for name in self._keys]
        for row in self._rows:
            pairs = zip(keys, row, strict=True)
            yield ", ".join(f"{k}: {json.dumps(value, ensure_ascii=False)}" for k, value in pairs)

    def arrays(self, schema: pyarrow.Schema) -> list[pyarrow.Array]:
        """Strings all."""
        import pyarrow

        return [
            pyarrow.array([row[column] for row in self._rows], pyarrow.string())
            for column in range(len(schema))
        ]


def refused_value(
    place: str,
    column: str,
    why: str,
    found: str,
    hint: str = "write the format that is read, with another end of --out",
) -> DataError:
    """The refusal of a value that the format does not have in which it is to be written."""
    return DataError(
        f"a value of the column '{column}' cannot be written: {why}",
        found=found,
        where=place,
        hint=hint,
    )


def no_json(place: str, column: str, found: str, *, nested: bool) -> DataError:
    """The refusal of a number that JSON does not have.

    Args:
        place: of its row.
        column: that it stands in.
        found: the number.
        nested: whether in an array or object, which is written as JSON in CSV too.
    """
    return refused_value(
        place,
        column,
        "JSON has no NaN and no infinity",
        found,
        "write null in its place"
        if nested
        else "write --out FILE.csv or FILE.parquet, which have it; or null in its place",
    )


def check_cell(text: str, column: str, place: str) -> None:
    """Refuse text that no CSV file can hold.

    Raises:
        DataError: naming row and column.
    """
    if "\0" in text:
        raise refused_value(place, column, "no CSV file holds a NUL", excerpt(text))
