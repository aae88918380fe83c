"""A table with named columns, and which of them make a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import DELIMITERS
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import excerpt

Record = tuple[str, Mapping[str, Any] | DataError]
"""Where a record stands ('line 7') and its values by column name; or why it is none."""
DEFAULT_TEXT_COLUMNS = ("text",)
FILE_COLUMNS = ("file", "audio", "image", "img")
"""What a column of sounds or pictures is called where nobody says so; the first that is there."""


class Columns(NamedTuple):
    """The columns of a table that are read, by what they are read for."""

    inputs: tuple[str, ...]
    """Those that make an input together."""
    label: str | None
    """That of the class; None where nobody knows it."""
    kept: tuple[str, ...] = ()
    of_files: bool = False
    """Whether the input is a sound or picture, of one column; else it is a text."""

    @property
    def all(self) -> list[str]:
        """Each once."""
        label = () if self.label is None else (self.label,)
        return list(dict.fromkeys((*self.inputs, *label, *self.kept)))


class Table(NamedTuple):
    """What is known of a table before its rows are read."""

    names: list[str]
    """Of all columns."""
    records: Callable[[Columns], Iterator[Record]]
    """Reads it, once; of every record at least those columns."""
    stored: tuple[str, ...] = ()
    """Columns that hold sounds or pictures themselves."""
    class_names: tuple[str, ...] | None = None
    """All classes in order where they are declared; integer labels then index them."""


def choose(table: Table, config: ExtractConfig, split: str, origin: str) -> Columns:
    """The columns of a table that make the rows of a split.

    Args:
        table: the table.
        config: names columns.
        split: whose rows they are.
        origin: file or hub id.

    Raises:
        ConfigError: a column that is named, or the usual one, is missing, or is label and input.
    """
    return choose_with(
        table, config, None if split in config.unlabelled else config.label_column, origin
    )


def choose_with(table: Table, config: ExtractConfig, label: str | None, origin: str) -> Columns:
    """The same, with the column of the classes; None where nobody asks for them."""
    file = _file_column(table, config)
    inputs = (config.text_columns or DEFAULT_TEXT_COLUMNS) if file is None else (file,)
    columns = Columns(inputs, label, config.keep_columns, file is not None)
    if label in inputs:
        raise ConfigError(
            "the labels are read as inputs too: every decoder would be right",
            expected="another --label-column, or other columns of inputs",
            found=f"'{label}' as both",
            where=origin,
        )
    for column in columns.all:
        if column not in table.names:
            raise _no_column(column, columns, table.names, config, origin)
    return columns


def _file_column(table: Table, config: ExtractConfig) -> str | None:
    """The column of sounds or pictures, where the rows are these."""
    if config.file_column is not None:
        return config.file_column
    if config.text_columns or set(DEFAULT_TEXT_COLUMNS) & set(table.names):
        return None
    names = table.stored or table.names
    usual = [name for name in FILE_COLUMNS if name in names]
    return usual[0] if usual else table.stored[0] if len(table.stored) == 1 else None


def _no_column(
    column: str, columns: Columns, names: Sequence[str], config: ExtractConfig, origin: str
) -> ConfigError:
    if column in columns.inputs:
        option = "--file-column" if columns.of_files else "--text-column"
    else:
        option = "--label-column" if column == columns.label else "--keep-column"
    shown = [name if name.isprintable() and len(name) < 40 else excerpt(name) for name in names]
    hint = f"name the column with {option}"
    if option == "--text-column" and not config.text_columns:
        hint += ", or one of sounds or pictures with --file-column"
    if option == "--label-column":
        hint += "; a split to predict on, without labels: --set unlabelled=SPLIT"
    if len(names) == 1:
        marks = [word for word, mark in DELIMITERS.items() if mark in names[0] and mark != " "]
        if marks and config.delimiter is None:
            hint += "; the fields of a CSV file are separated by commas, unless there is "
            hint += f"--set delimiter={marks[0]}"
        elif marks:
            hint += f"; do its fields have another delimiter, {marks[0]}?"
    return ConfigError(
        f"no column '{column}'",
        expected=f"one of: {', '.join(shown)}",
        found=f"{option} {column}",
        where=origin,
        hint=hint,
    )
