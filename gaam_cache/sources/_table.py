"""Rows out of a table: one column holds the class, others what is encoded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages.checks import excerpt
from gaam_cache.sources._spool import TextSpool
from gaam_cache.sources._texts import Texts, check_encodable, is_blank, text_of
from gaam_cache.terminal.progress import Report, counting, silent

Record = tuple[str, Mapping[str, Any]]
"""Where a record stands ('line 7') and its values by column name."""
DEFAULT_TEXT_COLUMNS = ("text",)


def text_columns(config: ExtractConfig) -> tuple[str, ...]:
    """The columns that make a text: those asked for, else the one called so."""
    return config.text_columns or DEFAULT_TEXT_COLUMNS


def collect(
    records: Iterable[Record],
    columns: Sequence[str],
    config: ExtractConfig,
    *,
    origin: str,
    class_names: tuple[str, ...] | None = None,
    report: Report = silent,
) -> Texts:
    """Turn records into rows of text, checking each; labels are kept as they stand.

    Args:
        records: pairs of where a record stands ('line 7') and the record.
        columns: the columns that the data set has.
        config: names the text and label columns and the limit.
        origin: file or hub id.
        class_names: the declared classes; integer labels then index them.
        report: told how many rows there are so far.

    Raises:
        ConfigError: a column is missing.
        DataError: no rows, a text that is empty or no string, a label that is missing or neither a
            string nor a whole number, or a lone surrogate in either.
    """
    wanted = text_columns(config)
    for column in (*wanted, config.label_column):
        if column not in columns:
            raise _no_column(column, columns, config, origin)
    texts, labels = TextSpool(), []
    known: dict[str, str] = {}  # of strings alone: 1, 1.0 and True are one key
    for place, record in counting(islice(records, config.limit), report, f"reading {origin}"):
        where = f"{origin}, {place}"
        texts.append(text_of(record, wanted, where))
        value = record[config.label_column]
        label = known.get(value) if type(value) is str else None
        if label is None:
            # one object per class, not per row
            label = sys.intern(_label(value, class_names, where))
            if type(value) is str:
                known[value] = label
        labels.append(label)
    if not texts:
        raise DataError("no rows", expected="at least one row", where=origin)
    return Texts(inputs=texts, labels=labels, class_names=class_names, origin=origin)


def _no_column(
    column: str, columns: Sequence[str], config: ExtractConfig, origin: str
) -> ConfigError:
    option = "--label-column" if column == config.label_column else "--text-column"
    names = [name if name.isprintable() and len(name) < 40 else excerpt(name) for name in columns]
    hint = f"name the column with {option}"
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t|"):
        hint += "; the fields of a CSV file are separated by commas"
    return ConfigError(
        f"no column '{column}'",
        expected=f"one of: {', '.join(names)}",
        found=f"{option} {column}",
        where=origin,
        hint=hint,
    )


def _label(value: Any, class_names: tuple[str, ...] | None, where: str) -> str:
    # True is an int to Python, but which class it means is anybody's guess
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and class_names is not None:
        if 0 <= value < len(class_names):
            return class_names[value]
    elif whole:
        return str(value)
    elif isinstance(value, str) and not is_blank(value):
        check_encodable(value, "label", where)
        return value
    hint = "mend the row or name another column with --label-column"
    if isinstance(value, bool):
        hint = 'write truth values as "true" and "false" in quotes, or as 1 and 0'
    elif isinstance(value, float):
        hint = "write whole numbers without a decimal point; " + hint
    raise DataError(
        "a label is missing or unusable",
        expected="a class name or a whole number"
        if class_names is None
        else f"a class name or a whole number from 0 to {len(class_names) - 1}",
        found=f"{excerpt(value)} ({type(value).__name__})",
        where=where,
        hint=hint,
    )
