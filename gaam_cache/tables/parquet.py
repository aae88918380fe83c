"""Parquet with all columns as they are stored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.errors import DataError
from gaam_cache.format.digest import hash_file
from gaam_cache.messages import excerpt
from gaam_cache.sources.formats.parquet import check_type, unreadable, values_of
from gaam_cache.tables.chunk import Chunk, check_cell, no_json
from gaam_cache.tables.inputs import Inputs
from gaam_cache.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

FEATURES = b"huggingface"
"""Of the metadata of a table: types of its columns, and no others, for ``datasets``."""


class ParquetTable(Table):
    """A Parquet file.

    Args:
        path: the file.
        inputs: says what of a row is encoded.
    """

    format = "parquet"

    def __init__(self, path: Path, inputs: Inputs) -> None:
        super().__init__(path, inputs)
        import pyarrow
        import pyarrow.parquet

        try:
            self._file = pyarrow.parquet.ParquetFile(path)
            schema = self._file.schema_arrow
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise unreadable(path, "the whole file", error) from error
        kept = {key: v for key, v in (schema.metadata or {}).items() if key != FEATURES}
        self._schema = schema.with_metadata(kept or None)
        self.names = list(schema.names)
        repeated = [name for name in schema.names if schema.names.count(name) > 1]
        if repeated:
            raise DataError(
                f"the column '{repeated[0]}' is there {schema.names.count(repeated[0])} times",
                expected="distinct column names",
                where=str(path),
            )
        for column in inputs.columns.inputs:
            check_type(path, column, schema.field(column).type, inputs.columns)

    def schema(self) -> pyarrow.Schema:
        """As they are stored."""
        return self._schema

    def _read(self) -> Iterator[Chunk]:
        import pyarrow

        # what lies in memory of a batch is no measure of its content: that of null is anything
        digest = hash_file(self.path)
        before = 0
        try:
            for table in _evenly(self._file, self.chunk_rows):
                yield self._chunk(table, before, digest)
                before += len(table)
        except (pyarrow.ArrowException, OSError) as error:
            raise unreadable(self.path, f"row {before + 1} or after", error) from error

    def _chunk(self, table: pyarrow.Table, before: int, digest: str) -> _Stored:
        names = self.inputs.columns.inputs
        parts = [values_of(self.path, table.column(n), n, before) for n in names]
        rows = zip(*parts, strict=True)
        inputs = [self.inputs.of(dict(zip(names, row, strict=True))) for row in rows]
        places = [f"row {before + row + 1}" for row in range(len(table))]
        states = self.inputs.states(inputs)
        return _Stored(table, f"{digest} {before}", str(self.path), places, inputs, states)


def _evenly(file: Any, size: int) -> Iterator[pyarrow.Table]:
    """Pieces of as many rows as all have, however the file is divided."""
    import pyarrow

    left: list[pyarrow.RecordBatch] = []
    count = 0
    for batch in file.iter_batches(size):
        left.append(batch)
        count += len(batch)
        while count >= size:
            table = pyarrow.Table.from_batches(left)
            yield table.slice(0, size)
            left = table.slice(size).to_batches()
            count -= size
    if count:
        yield pyarrow.Table.from_batches(left)


class _Stored(Chunk):
    """Rows of a file that has one digest."""

    def __init__(self, table: pyarrow.Table, identity: str, path: str, *rest: Any) -> None:
        super().__init__(*rest)
        self._table = table
        self._identity = identity
        self._path = path

    def _contents(self) -> Iterator[bytes]:
        yield f"{self._identity} {len(self)}".encode()

    def fields(self) -> Iterator[list[str]]:
        """Strings and numbers as they are, times as ISO 8601, what is nested as JSON."""
        columns = [self._spelled(name, _cell) for name in self._table.column_names]
        return map(list, zip(*columns, strict=True))

    def members(self) -> Iterator[str]:
        """The same, null as null; what is no number is a string."""
        names = self._table.column_names
        columns = [self._spelled(name, _json) for name in names]
        keys = [json.dumps(name, ensure_ascii=False) for name in names]
        for row in zip(*columns, strict=True):
            yield ", ".join(f"{key}: {value}" for key, value in zip(keys, row, strict=True))

    def arrays(self, schema: pyarrow.Schema) -> list[pyarrow.Array]:
        """As they are stored."""
        return [column.combine_chunks() for column in self._table.columns]

    def _spelled(self, name: str, spell: Callable[[Any, str, str], str]) -> list[str]:
        """The values of a column, as a format has them."""
        import pyarrow
        from pyarrow import types

        column = self._table.column(name)
        inner = column.type.value_type if types.is_dictionary(column.type) else column.type
        where = self._path
        try:
            if types.is_temporal(inner) or types.is_decimal(inner):
                column = column.cast(pyarrow.string())
            found = []
            for place, value in zip(self.places, column.to_pylist(), strict=True):
                where = f"{self._path}, {place}"
                found.append(spell(value, name, where))
        except DataError:
            raise
        except (TypeError, ValueError, pyarrow.ArrowException) as error:
            raise DataError(
                f"the column '{name}' cannot be written as text",
                expected="strings, numbers, truth values, times, and lists and structs of them",
                found=f"values of type {column.type}: {excerpt(str(error))}",
                where=where,
                hint="write Parquet: --out FILE.parquet",
            ) from error
        return found


def _cell(value: Any, column: str, place: str) -> str:
    if isinstance(value, str):
        check_cell(value, column, place)
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return "" if value is None else _json(value, column, place)


def _json(value: Any, column: str, place: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        nested = not isinstance(value, float)
        raise no_json(place, column, excerpt(value), nested=nested) from error
