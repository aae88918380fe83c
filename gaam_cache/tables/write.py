"""Rows with more columns behind their own, in any format."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gaam_cache.tables.chunk import Chunk
from gaam_cache.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

GROUP_BYTES = 32 * 2**20
"""Of a row group of Parquet: of many small ones the footer alone would fill the memory."""
Added = Mapping[str, Sequence[str | float | None]]
"""Columns that are added to some rows: one value per row."""


class Column(NamedTuple):
    """A column that is added to all rows."""

    name: str
    is_text: bool
    """Else its values are numbers."""


def written(
    table: Table, to: str, columns: Sequence[Column], rows: Iterable[tuple[Chunk, Added]]
) -> Iterator[bytes]:
    """A whole file, piece by piece.

    Args:
        table: what was read.
        to: format of the file.
        columns: that are added.
        rows: of the table, with what is added.

    Raises:
        DataError: a value that the format does not have.
    """
    return WRITERS[to](table, columns, rows)


def _csv(
    table: Table, columns: Sequence[Column], rows: Iterable[tuple[Chunk, Added]]
) -> Iterator[bytes]:
    delimiter = table.delimiter
    special = re.compile(f'[\\r\\n"\ufeff{re.escape(delimiter)}]')

    def line(fields: Iterable[str]) -> str:
        return delimiter.join(
            '"' + field.replace('"', '""') + '"' if special.search(field) else field
            for field in fields
        )

    # with the first rows: until they are there, anything may still be refused
    head = line([*table.names, *(column.name for column in columns)]) + "\n"
    for chunk, added in rows:
        more = zip(*(map(_field, added[column.name]) for column in columns), strict=True)
        pairs = zip(chunk.fields(), more, strict=True)
        yield (head + "".join(line([*fields, *values]) + "\n" for fields, values in pairs)).encode()
        head = ""
    yield head.encode()


def _field(value: str | float | None) -> str:
    return "" if value is None else str(value)


def _jsonl(
    table: Table,  # noqa: ARG001 objects name their columns themselves
    columns: Sequence[Column],
    rows: Iterable[tuple[Chunk, Added]],
) -> Iterator[bytes]:
    keys = [json.dumps(column.name, ensure_ascii=False) for column in columns]
    for chunk, added in rows:
        more = zip(*(added[column.name] for column in columns), strict=True)
        lines = []
        for members, values in zip(chunk.members(), more, strict=True):
            results = ", ".join(
                f"{key}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
                for key, value in zip(keys, values, strict=True)
            )
            lines.append(f"{{{members}{', ' if members else ''}{results}}}\n")
        yield "".join(lines).encode()


def _parquet(
    table: Table, columns: Sequence[Column], rows: Iterable[tuple[Chunk, Added]]
) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    own = table.schema()
    whole = own
    for column in columns:
        kind = pyarrow.string() if column.is_text else pyarrow.float64()
        whole = whole.append(pyarrow.field(column.name, kind))
    sink = _Sink()
    writer = pyarrow.parquet.ParquetWriter(sink, whole)
    group: list[pyarrow.Table] = []
    for chunk, added in rows:
        arrays = chunk.arrays(own)
        for column, field in zip(columns, list(whole)[len(own) :], strict=True):
            arrays.append(pyarrow.array(added[column.name], field.type))
        group.append(pyarrow.Table.from_arrays(arrays, schema=whole))
        if sum(part.nbytes for part in group) >= GROUP_BYTES:
            writer.write_table(pyarrow.concat_tables(group))
            group = []
            yield sink.taken()
    if group:
        writer.write_table(pyarrow.concat_tables(group))
    writer.close()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file that hands on what is written to it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._pieces.append(bytes(content))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


_Writer = Callable[[Table, Sequence[Column], Iterable[tuple[Chunk, Added]]], Iterator[bytes]]
WRITERS: dict[str, _Writer] = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}
"""By format."""
