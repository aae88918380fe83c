"""JSON lines with all that stands in them, as it is spelled there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._texts import check_encodable
from gaam_cache.sources.formats._jsonl import first_object, read_objects
from gaam_cache.tables.chunk import Chunk, Input, check_cell, no_json, refused_value
from gaam_cache.tables.inputs import Inputs
from gaam_cache.tables.numbers import CONSTANTS, Number, spelled
from gaam_cache.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

_Row = tuple[str, str, Mapping[str, Any], Input]
_TYPES = {
    frozenset[str](): "string",
    frozenset({"text"}): "string",
    frozenset({"nested"}): "string",
    frozenset({"truth"}): "bool",
    frozenset({"whole"}): "int64",
    frozenset({"long"}): "int64",
    frozenset({"whole", "long"}): "int64",
    frozenset({"number"}): "double",
    frozenset({"whole", "number"}): "double",
}
"""Which type of Parquet has all the kinds of values of a column."""


class JsonLinesTable(Table):
    """JSON lines; the first object names the columns, others may lack some.

    Args:
        path: the file.
        inputs: says what of a row is encoded.
        encoding: of its characters; None means UTF-8.
        reserved: names of columns that are to be added.
    """

    format = "jsonl"

    def __init__(
        self, path: Path, inputs: Inputs, encoding: str | None, reserved: Sequence[str]
    ) -> None:
        super().__init__(path, inputs)
        self._encoding = encoding
        self._reserved = frozenset(reserved)
        _, _, first = first_object(path, read_objects(path, encoding))
        self.names = list(first)
        self._kinds: dict[str, set[str]] = {name: set() for name in first}

    def look(self, chunk: Chunk, to: str) -> None:
        """Take note of the kinds of values; objects must have no columns but the first's."""
        assert isinstance(chunk, ObjectsChunk)
        known = set(self.names)
        for place, line, record in zip(chunk.places, chunk.lines, chunk.records, strict=True):
            if to == self.format:  # as they stand; few lines hold what is no JSON
                if any(constant in line for constant in CONSTANTS):
                    for name, value in record.items():
                        _check_spelling(value, name, f"{self.path}, {place}", to)
                continue
            if more := [key for key in record if key not in known]:
                raise DataError(
                    "a line has a key that the first line has not",
                    expected=", ".join(map(excerpt, self.names[:8])),
                    found=", ".join(map(excerpt, more[:8])),
                    where=f"{self.path}, {place}",
                    hint="write JSON lines: --out FILE.jsonl",
                )
            for name, value in record.items():
                self._kinds[name].add(_kind(value))
                _check_text(value, name, f"{self.path}, {place}", to)
                _check_spelling(value, name, f"{self.path}, {place}", to)
            if to == "parquet":
                self._check_kinds(record, f"{self.path}, {place}")

    def _check_kinds(self, record: Mapping[str, Any], place: str) -> None:
        for name in record:
            if frozenset(self._kinds[name] - {"null"}) not in _TYPES:
                kinds = ", ".join(sorted(self._kinds[name] - {"null"}))
                why = "no type of Parquet has all values of the column"
                raise refused_value(place, name, why, f"{excerpt(record[name])}; so far {kinds}")

    def schema(self) -> pyarrow.Schema:
        """Strings, truth values, whole numbers, numbers; what is nested is a string of JSON."""
        import pyarrow

        types = {n: _TYPES[frozenset(kinds - {"null"})] for n, kinds in self._kinds.items()}
        return pyarrow.schema([(name, pyarrow.type_for_alias(types[name])) for name in self.names])

    def _read(self) -> Iterator[Chunk]:
        return self._in_chunks(self._rows(), self._chunk)

    def _chunk(self, rows: list[_Row]) -> ObjectsChunk:
        places, lines, records, inputs = zip(*rows, strict=True)
        return ObjectsChunk(self.names, lines, records, places, inputs, self.inputs.states(inputs))

    def _rows(self) -> Iterator[_Row]:
        self.blank = 0
        objects = read_objects(self.path, self._encoding, number=Number, skipped=self._skip)
        columns = self.inputs.columns.inputs
        for where, line, record in objects:
            if isinstance(record, DataError):
                yield where, line, {}, record
            elif taken := [key for key in record if key in self._reserved]:
                yield where, line, {}, _taken(taken[0])
            elif lacking := [key for key in columns if key not in record]:
                yield where, line, {}, _lacks(lacking, record)
            else:
                yield where, line, record, self.inputs.of(record)


class ObjectsChunk(Chunk):
    """Objects, and the lines that they were read from."""

    def __init__(
        self,
        names: Sequence[str],
        lines: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        *rest: Any,
    ) -> None:
        super().__init__(*rest)
        self._keys = names
        self.lines = lines
        self.records = records

    def _contents(self) -> Iterator[bytes]:
        return (line.strip().encode() for line in self.lines)

    def fields(self) -> Iterator[list[str]]:
        """Strings as they are, all else as JSON has it."""
        for record in self.records:
            yield [_as_text(record.get(name)) for name in self._keys]

    def members(self) -> Iterator[str]:
        """As they are spelled."""
        for line in self.lines:
            yield line.strip()[1:-1].strip()

    def arrays(self, schema: pyarrow.Schema) -> list[pyarrow.Array]:
        """By the types of the table."""
        import pyarrow

        found = []
        for field in schema:
            values = [record.get(field.name) for record in self.records]
            if field.type == pyarrow.string():
                values = [None if value is None else _as_text(value) for value in values]
            elif field.type == pyarrow.float64():
                values = [None if value is None else float(value.text) for value in values]
            elif field.type == pyarrow.int64():
                values = [int(v.text) if isinstance(v, Number) else v for v in values]
            found.append(pyarrow.array(values, field.type))
        return found


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return value.text if isinstance(value, Number) else spelled(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "truth"
    return value.kind if isinstance(value, Number) else "nested"


def _check_spelling(value: Any, name: str, place: str, to: str) -> None:
    """Refuse numbers that JSON does not have, where JSON is written; a cell may be one."""
    if isinstance(value, Number) and to != "jsonl":
        return
    if isinstance(value, Number | Mapping | list):
        try:
            spelled(value)
        except ValueError as error:
            raise no_json(place, name, str(error), nested=not isinstance(value, Number)) from error
        except RecursionError as error:
            why = "its arrays or objects are nested too deeply"
            raise refused_value(place, name, why, excerpt(value)) from error


def _check_text(value: Any, name: str, place: str, to: str) -> None:
    if isinstance(value, str):
        try:
            check_encodable(value, "value")
        except DataError as error:
            found = error.details["found"]
            raise refused_value(place, name, "it holds half a character", found) from error
        if to == "csv":
            check_cell(value, name, place)


def _taken(name: str) -> DataError:
    return DataError(
        f"a line has a key '{name}', which is that of a result",
        hint="name the results otherwise: --prefix NAME_",
    )


def _lacks(names: Sequence[str], record: Mapping[str, Any]) -> DataError:
    return DataError(
        "a line lacks a column that is to be encoded",
        expected=", ".join(names),
        found=", ".join(map(excerpt, list(record)[:8])) or "an empty object",
        hint="write null where a column of several is empty, or name others with --text-column",
    )
