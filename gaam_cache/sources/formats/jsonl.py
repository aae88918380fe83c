"""JSON lines: one object on each line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._table import Columns, Record, Table
from gaam_cache.sources.formats._base import Format
from gaam_cache.sources.formats._jsonl import first_object, read_objects


class JsonLinesFormat(Format):
    """One object on each line; the first one names the columns."""

    reads: ClassVar[frozenset[str]] = frozenset({"encoding"})

    def open(self, path: Path, config: ExtractConfig) -> Table:
        """Keys of the first object, and all objects; the others need only what is asked for."""
        objects = read_objects(path, config.encoding)
        place, line, first = first_object(path, objects)
        every = chain([(place, line, first)], objects)
        records: Iterator[Record] = ((where, record) for where, _, record in every)
        return Table(list(first), lambda columns: _records(records, columns))


def _records(objects: Iterator[Record], columns: Columns) -> Iterator[Record]:
    wanted = columns.all
    for where, record in objects:
        if isinstance(record, DataError) or all(key in record for key in wanted):
            yield where, record
            continue
        yield (
            where,
            DataError(
                "a line lacks a column that the first line has",
                expected=", ".join(key for key in wanted if key not in record),
                found=", ".join(record) or "an empty object",
                hint="write null where a column of several is empty",
            ),
        )
