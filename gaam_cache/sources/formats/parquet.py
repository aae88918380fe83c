"""Parquet, read in batches and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._table import Columns, Record, Table
from gaam_cache.sources.formats._base import Format

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 4096
BATCH_FILES = 16
"""The same of rows that hold sounds or pictures: some megabytes each at worst."""


class ParquetFormat(Format):
    """Parquet, of which only the columns that are needed are read."""

    def open(self, path: Path, config: ExtractConfig) -> Table:  # noqa: ARG002 it says all itself
        """Names of all columns; records have what was asked for alone."""
        import pyarrow
        import pyarrow.parquet

        try:
            file = pyarrow.parquet.ParquetFile(path)
            schema = file.schema_arrow
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise unreadable(path, "the whole file", error) from error
        stored = tuple(field.name for field in schema if _holds_files(field.type))
        return Table(list(schema.names), lambda columns: _records(path, file, columns), stored)


def _records(path: Path, file: pyarrow.parquet.ParquetFile, columns: Columns) -> Iterator[Record]:
    import pyarrow

    schema, wanted = file.schema_arrow, columns.all
    for column in wanted:
        if schema.names.count(column) > 1:
            raise DataError(
                f"the column '{column}' is there {schema.names.count(column)} times",
                expected="distinct column names",
                where=str(path),
            )
        check_type(path, column, schema.field(column).type, columns)
    row = 0
    size = BATCH_FILES if columns.of_files else BATCH_ROWS
    try:
        for batch in file.iter_batches(size, columns=wanted):
            parts = [values_of(path, batch.column(name), name, row) for name in wanted]
            for values in zip(*parts, strict=True):
                row += 1
                yield f"row {row}", dict(zip(wanted, values, strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable(path, f"row {row + 1} or after", error) from error


def _is_bytes(type_: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_binary(type_) or types.is_large_binary(type_))


def _holds_files(type_: pyarrow.DataType) -> bool:
    """Whether sounds and pictures are stored so: as a struct of bytes and path."""
    from pyarrow import types

    if not types.is_struct(type_):
        return False
    fields = {field.name: field.type for field in type_}
    return set(fields) == {"bytes", "path"} and _is_bytes(fields["bytes"])


def check_type(path: Path, column: str, type_: pyarrow.DataType, columns: Columns) -> None:
    """Refuse a column whose values cannot be what they are read for.

    Raises:
        DataError: saying what they are.
    """
    from pyarrow import types

    inner = type_.value_type if types.is_dictionary(type_) else type_
    is_string = types.is_string(inner) or types.is_large_string(inner)
    is_string = is_string or types.is_null(inner) or types.is_string_view(inner)
    whole = column not in columns.inputs
    if is_string or (whole and types.is_integer(inner)):
        return
    what, option = "text", "--text-column"
    if columns.of_files and not whole:
        if _holds_files(type_) or _is_bytes(type_):
            return
        what, option = "sound or picture", "--file-column"
    if whole:
        is_label = column == columns.label
        what, option = ("label", "--label-column") if is_label else ("kept column", "--keep-column")
    raise DataError(
        f"the column '{column}' cannot be a {what}",
        expected="paths, bytes, or a struct of bytes and path"
        if option == "--file-column"
        else "strings or whole numbers"
        if whole
        else "strings",
        found=f"values of type {type_}",
        where=f"{path}, column '{column}'",
        hint=f"store it as {'bytes' if option == '--file-column' else 'strings'}, or name another "
        f"column with {option}",
    )


def values_of(path: Path, array: pyarrow.Array, column: str, before: int) -> list[Any]:
    """The values of an array.

    Args:
        path: of the file.
        array: some rows of a column.
        column: its name.
        before: rows before them.

    Raises:
        DataError: a string that is none.
    """
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        for index, value in enumerate(array):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"the column '{column}' is not UTF-8",
                    expected="UTF-8, as Parquet requires of strings",
                    found=str(error),
                    where=f"{path}, row {before + index + 1}",
                    hint="write the file anew from the source of its rows",
                ) from error
        raise


def unreadable(path: Path, where: str, error: Exception) -> DataError:
    """The refusal of a file that is damaged, or of another kind."""
    return DataError(
        f"cannot read '{path.name}'",
        expected="a Parquet file",
        found=" ".join(str(error).split()),
        where=f"{path}, {where}",
    )
