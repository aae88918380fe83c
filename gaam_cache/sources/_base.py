"""What a source of rows is, and how a ``--dataset`` finds its source."""

from __future__ import annotations

import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._spool import TextSpool
from gaam_cache.terminal.progress import Report, counting, silent

Record = tuple[str, Mapping[str, Any]]
"""Where a record stands ('line 7') and its values by column name."""
LONGEST_EXCERPT = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows of one split, in data-set order."""

    texts: Sequence[str]
    """One text per row, as it stands in the data; never blank, always encodable as UTF-8."""
    labels: Sequence[str]
    """The class name of every row."""
    class_names: tuple[str, ...] | None
    """All classes in order where the source declares them, else None."""
    origin: str
    """Where the rows came from, for messages and provenance."""
    revision: str | None = None
    """Commit on the hub, where they came from there."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.texts)


class Source(ABC):
    """Reads rows. ``dataset`` is what the user wrote after ``--dataset``."""

    priority: ClassVar[int]
    """Sources are asked in ascending order whether a data set is theirs."""
    default_text_columns: ClassVar[tuple[str, ...]] = ("text",)

    @classmethod
    @abstractmethod
    def claims(cls, dataset: str) -> bool:
        """Whether this source is the one to read ``dataset``."""

    @abstractmethod
    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """All rows of one split; ``report`` is told how many there are so far.

        Raises:
            NotFoundError: no such file, data set or split.
            ConfigError: no such column.
            DataError: a row cannot be used; says which.
        """


def find_source(dataset: str) -> Source:
    """The first source, by priority, that claims ``dataset``."""
    sources = plugins.load_all("gaam_cache.sources", kind="source")
    for source in sorted(sources, key=lambda source: source.priority):
        if source.claims(dataset):
            return source()
    raise ConfigError(f"no source can read the data set '{dataset}'")


def text_columns(config: ExtractConfig, source: Source) -> tuple[str, ...]:
    """The columns that make a text: those asked for, else the source's default."""
    return config.text_columns or source.default_text_columns


def collect(
    records: Iterable[Record],
    columns: Sequence[str],
    config: ExtractConfig,
    source: Source,
    *,
    origin: str,
    class_names: tuple[str, ...] | None = None,
    report: Report = silent,
) -> Rows:
    """Turn records into rows, checking each.

    Texts and labels are kept as they stand, white space included. Several text columns are joined
    by one space; those that are null or blank in a row are left out of that row's text.

    Args:
        records: pairs of where a record stands ('line 7') and the record.
        columns: the columns that the data set has.
        config: names the text and label columns and the limit.
        source: gives the default text columns.
        origin: file or hub id.
        class_names: the declared classes; integer labels then index them.
        report: told how many rows there are so far.

    Raises:
        ConfigError: a column is missing.
        DataError: no rows, a text that is empty or no string, a label that is missing or neither a
            string nor a whole number, or a lone surrogate in either.
    """
    wanted = text_columns(config, source)
    for column in (*wanted, config.label_column):
        if column not in columns:
            raise _no_column(column, columns, config, origin)
    texts, labels = TextSpool(), []
    for place, record in counting(islice(records, config.limit), report, f"reading {origin}"):
        where = f"{origin}, {place}"
        texts.append(_text(record, wanted, where))
        # one object per class, not per row
        labels.append(sys.intern(_label(record[config.label_column], class_names, where)))
    if not texts:
        raise DataError("no rows", expected="at least one row", where=origin)
    return Rows(texts=texts, labels=labels, class_names=class_names, origin=origin)


def excerpt(value: object) -> str:
    """The value in quotes and on one line, for messages; its end is cut off where it is long."""
    if isinstance(value, str) and len(value) > LONGEST_EXCERPT:
        return f"{value[: LONGEST_EXCERPT - 3]!r}..."
    shown = repr(value)
    return shown if isinstance(value, str) or len(shown) <= 100 else f"{shown[:97]}..."


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


def _text(record: Mapping[str, Any], columns: Sequence[str], where: str) -> str:
    parts = []
    for column in columns:
        part = record[column]
        if part is not None and not isinstance(part, str):
            # a number could be written in several ways: which one is not ours to choose
            raise DataError(
                "a text is no string",
                expected=f"a string in column '{column}'",
                found=f"{excerpt(part)} ({type(part).__name__})",
                where=where,
                hint="write it as a string, or name another column with --text-column",
            )
        if part is not None and not _is_blank(part):
            parts.append(part)
    if not parts:
        found = ", ".join(excerpt(record[column]) for column in columns)
        raise DataError(
            "a text is empty",
            expected=f"words in {' + '.join(columns)}",
            found=f"nothing that can be seen: {found}",
            where=where,
            hint="remove the row or name other columns with --text-column",
        )
    text = parts[0] if len(parts) == 1 else " ".join(parts)
    _check_encodable(text, "text", where)
    return text


def _label(value: Any, class_names: tuple[str, ...] | None, where: str) -> str:
    # True is an int to Python, but which class it means is anybody's guess
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and class_names is not None:
        if 0 <= value < len(class_names):
            return class_names[value]
    elif whole:
        return str(value)
    elif isinstance(value, str) and not _is_blank(value):
        _check_encodable(value, "label", where)
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


def _is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: white space, control and zero-width characters."""
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def _check_encodable(text: str, what: str, where: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"a {what} holds half a character",
            expected="text that can be written as UTF-8",
            found=f"the lone surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start + 1}",
            where=where,
            hint="a character was cut in two when the file was written: mend or remove the row",
        ) from error
