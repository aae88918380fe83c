"""CSV as RFC 4180 has it: commas (or what is said), double quotes, a header line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import delimiter_of
from gaam_cache.errors import DataError
from gaam_cache.sources._table import Record, Table
from gaam_cache.sources.formats._base import Format
from gaam_cache.sources.formats._csv import CsvFile, read_header, read_rows, sized


class CsvFormat(Format):
    """Commas, double quotes, a header line; white space around column names does not count."""

    reads: ClassVar[frozenset[str]] = frozenset({"delimiter", "encoding"})

    def open(self, path: Path, config: ExtractConfig) -> Table:
        """The header, and a record for every row that is not empty."""
        file = CsvFile(path, delimiter_of(config), config.encoding)
        rows = read_rows(file)
        names = [name.strip() for name in read_header(file, rows)]
        return Table(names, lambda columns: _records(file, names, rows))  # noqa: ARG005 all


def _records(
    file: CsvFile, names: list[str], rows: Iterator[tuple[str, list[str]]]
) -> Iterator[Record]:
    for where, row in sized(file, names, rows):
        if isinstance(row, DataError):
            yield where, row
        else:
            yield where, dict(zip(names, row, strict=True))
