"""Which format a file has, and its table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import delimiter_of
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.sources import files
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._table import DEFAULT_TEXT_COLUMNS, FILE_COLUMNS, Columns, choose_with
from gaam_cache.tables.delimited import CsvTable, LinesTable
from gaam_cache.tables.inputs import Inputs
from gaam_cache.tables.jsonl import JsonLinesTable
from gaam_cache.tables.parquet import ParquetTable
from gaam_cache.tables.table import Table

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
"""What the end of a name says."""
LINES = "text"
"""The format of texts that stand one a line; no table, and none is written."""


class Reading(NamedTuple):
    """How a table is to be read."""

    format: str
    text_columns: tuple[str, ...] = ()
    """Those of texts; empty where rows are files."""
    file_column: str | None = None
    of_files: bool = False
    """Whether rows are sounds or pictures."""
    delimiter: str | None = None
    encoding: str | None = None
    outside: bool = False
    skip_empty: bool = False


def format_of(path: Path, option: str) -> str:
    """The format that the end of a name says.

    Raises:
        ConfigError: it says none.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"no format ends in '{path.suffix}'" if path.suffix else "a file without an end",
            expected=f"a file ending in {', '.join(FORMATS)}",
            found=f"{option} {path}",
        )
    return FORMATS[path.suffix]


def open_table(path: Path, how: Reading, folder: Path, reserved: Sequence[str]) -> Table:
    """The table in a file, of which no more than the names of its columns is read yet.

    Args:
        path: the file.
        how: it is to be read.
        folder: paths that it names are relative to it.
        reserved: names of columns that are to be added.

    Raises:
        NotFoundError: no file.
        ConfigError: a column is missing, one is there already that is to be added, or a setting
            plays no part.
        DataError: what is wrong and where.
        StorageError: it cannot be read.
    """
    if not path.is_file():
        raise NotFoundError(
            f"no file '{path}'",
            found="a folder" if path.is_dir() else None,
            where=str(path.absolute()),
        )
    config = ExtractConfig(
        text_columns=how.text_columns,
        file_column=how.file_column,
        delimiter=how.delimiter,
        encoding=how.encoding,
    )
    if how.format == LINES:
        refuse_unused(config, {"delimiter"}, str(path))
        names = (FILE_COLUMNS[0],) if how.of_files else DEFAULT_TEXT_COLUMNS
        columns = Columns(names, None, (), how.of_files)
    else:
        format = plugins.load(files.FORMATS, how.format, kind="format of data files")
        refuse_unused(config, {"delimiter", "encoding"} - format.reads, str(path))
        there = format().open(path, config)
        if how.of_files and how.file_column is None:
            usual = next((name for name in FILE_COLUMNS if name in there.names), FILE_COLUMNS[0])
            config = dataclasses.replace(config, file_column=usual)
        columns = choose_with(there, config, None, str(path))
    inputs = Inputs(columns, folder.absolute(), how.outside, how.skip_empty)
    table: Table
    if how.format == LINES:
        table = LinesTable(path, inputs, how.encoding)
    elif how.format == "csv":
        table = CsvTable(path, inputs, delimiter_of(config), how.encoding)
    elif how.format == "jsonl":
        table = JsonLinesTable(path, inputs, how.encoding, reserved)
    else:
        table = ParquetTable(path, inputs)
    check_reserved(table, reserved)
    return table


def check_reserved(table: Table, reserved: Sequence[str]) -> None:
    """Refuse a table that has a column already that is to be added.

    Raises:
        ConfigError: naming it.
    """
    if taken := [name for name in table.names if name.strip() in set(reserved)]:
        raise ConfigError(
            f"there is a column '{taken[0].strip()}' already",
            expected=f"none of: {', '.join(reserved[:8])}",
            where=str(table.path),
            hint="name the results otherwise: --prefix NAME_",
        )
