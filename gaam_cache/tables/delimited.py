"""Tables of strings: CSV files, and texts that stand one a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gaam_cache.errors import DataError
from gaam_cache.sources.formats._csv import CsvFile, read_header, read_rows, sized
from gaam_cache.sources.formats._lines import numbered_lines
from gaam_cache.tables.chunk import Chunk, FieldsChunk, Input
from gaam_cache.tables.inputs import Inputs
from gaam_cache.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

_Row = tuple[str, list[str], Input]


class _Strings(Table):
    def schema(self) -> pyarrow.Schema:
        """Strings all."""
        import pyarrow

        return pyarrow.schema([(name, pyarrow.string()) for name in self.names])

    def _chunk(self, rows: list[_Row]) -> FieldsChunk:
        places, fields, inputs = zip(*rows, strict=True)
        return FieldsChunk(self.names, fields, places, inputs, self.inputs.states(inputs))


class CsvTable(_Strings):
    """A CSV file.

    Args:
        path: the file.
        inputs: says what of a row is encoded.
        delimiter: what parts fields.
        encoding: of its characters; None means UTF-8.
    """

    format = "csv"

    def __init__(self, path: Path, inputs: Inputs, delimiter: str, encoding: str | None) -> None:
        super().__init__(path, inputs)
        self.delimiter = delimiter
        self._file = CsvFile(path, delimiter, encoding)
        self.names = read_header(self._file, read_rows(self._file))

    def _read(self) -> Iterator[Chunk]:
        return self._in_chunks(self._rows(), self._chunk)

    def _rows(self) -> Iterator[_Row]:
        self.blank = 0
        rows = read_rows(self._file, self._skip)
        names = [name.strip() for name in read_header(self._file, rows)]
        for where, row in sized(self._file, names, rows):
            if isinstance(row, DataError):
                yield where, [], row
            else:
                yield where, row, self.inputs.of(dict(zip(names, row, strict=True)))


class LinesTable(_Strings):
    """A file with a text, or a path, on each line; the end of a line is no part of it.

    Args:
        path: the file.
        inputs: says what of a row is encoded; its column is the only one.
        encoding: of its characters; None means UTF-8.
    """

    format = "text"

    def __init__(self, path: Path, inputs: Inputs, encoding: str | None) -> None:
        super().__init__(path, inputs)
        self._encoding = encoding
        self.names = [inputs.columns.inputs[0]]

    def _read(self) -> Iterator[Chunk]:
        return self._in_chunks(self._rows(), self._chunk)

    def _rows(self) -> Iterator[_Row]:
        for number, line in numbered_lines(self.path, newline="\n", encoding=self._encoding):
            text = line.removesuffix("\n").removesuffix("\r")
            yield f"line {number}", [text], self.inputs.of({self.names[0]: text})
