"""What a source of rows is, and how a ``--dataset`` finds its source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from gaam_cache import registry
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows of one split, in data-set order."""

    texts: Sequence[str]
    """One text per row; never empty or blank."""
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
    def read(self, config: ExtractConfig, split: str) -> Rows:
        """All rows of one split.

        Raises:
            NotFoundError: no such file, data set or split.
            ConfigError: no such column.
            DataError: a row cannot be used; says which.
        """


def find_source(dataset: str) -> Source:
    """The first source, by priority, that claims ``dataset``."""
    package = "gaam_cache.sources"
    sources = [registry.load(package, name, kind="source") for name in registry.names(package)]
    for source in sorted(sources, key=lambda source: source.priority):
        if source.claims(dataset):
            return source()
    raise ConfigError(f"no source can read the data set '{dataset}'")


def collect(
    records: Iterable[tuple[str, Mapping[str, Any]]],
    columns: Sequence[str],
    config: ExtractConfig,
    source: Source,
    *,
    origin: str,
    class_names: tuple[str, ...] | None = None,
) -> Rows:
    """Turn records into rows, checking each.

    Args:
        records: pairs of where a record stands ('line 7') and the record.
        columns: the columns that the data set has.
        config: names the text and label columns and the limit.
        source: gives the default text columns.
        origin: file or hub id.
        class_names: the declared classes; integer labels then index them.

    Raises:
        ConfigError: a column is missing.
        DataError: no rows, an empty text, a missing label.
    """
    text_columns = config.text_columns or source.default_text_columns
    for column in (*text_columns, config.label_column):
        if column not in columns:
            option = "--label-column" if column == config.label_column else "--text-column"
            raise ConfigError(
                f"no column '{column}'",
                expected=f"one of: {', '.join(columns)}",
                found=f"{option} {column}",
                where=origin,
                hint=f"name the column with {option}",
            )
    texts, labels = [], []
    for where, record in islice(records, config.limit):
        parts = [record[column] for column in text_columns]
        text = " ".join("" if part is None else str(part) for part in parts).strip()
        if not text:
            raise DataError(
                "a text is empty",
                expected=f"words in {' + '.join(text_columns)}",
                found="nothing but white space",
                where=f"{origin}, {where}",
                hint="remove the row or name other columns with --text-column",
            )
        texts.append(text)
        labels.append(_label(record[config.label_column], class_names, f"{origin}, {where}"))
    if not texts:
        raise DataError("no rows", expected="at least one row", where=origin)
    return Rows(texts=texts, labels=labels, class_names=class_names, origin=origin)


def _label(value: Any, class_names: tuple[str, ...] | None, where: str) -> str:
    if class_names is not None and isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(class_names):
            return class_names[value]
    elif isinstance(value, (str, int)) and str(value).strip():
        return str(value).strip()
    raise DataError(
        "a label is missing or unusable",
        expected="a class name or a whole number",
        found=repr(value),
        where=where,
        hint="mend the row or name another column with --label-column",
    )
