"""Rows out of a table: one column holds the class, others what is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._bad_rows import BadRows
from gaam_cache.sources._base import NO_LABEL
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._spool import TextSpool
from gaam_cache.sources._table import Columns, Table
from gaam_cache.sources._texts import Texts, empty_text, text_of
from gaam_cache.sources._values import Labels, kept_text
from gaam_cache.terminal import Report, counting, silent

OF_MEDIA = ("allow_outside", "clip_seconds", "clip_mode")
"""Settings that say nothing about texts."""


@dataclass(slots=True)
class Cells:
    """What rows have beside their inputs, as far as they are read."""

    columns: Columns
    reader: Labels
    labels: list[str] = field(default_factory=list)
    kept: dict[str, TextSpool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """A spool for every kept column."""
        self.kept = {name: TextSpool() for name in self.columns.kept}

    def add(self, record: Mapping[str, Any], times: int = 1) -> None:
        """Read those of a record, and add them all or none.

        Args:
            record: of a table.
            times: how many rows it is.

        Raises:
            DataError: one of them cannot be used.
        """
        column = self.columns.label
        label = NO_LABEL if column is None else self.reader.read(record[column])
        if self.kept:
            values = [kept_text(record[name], name) for name in self.kept]
            for spool, value in zip(self.kept.values(), values, strict=True):
                for _ in range(times):
                    spool.append(value)
        self.labels.extend((label,) * times)


def collect(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    *,
    origin: str,
    kind: OneKind,
    report: Report = silent,
) -> Texts:
    """Turn records into rows of text, checking each; labels are kept as they stand.

    Args:
        table: the records.
        columns: those that make a row.
        config: says what is left out, and the limit.
        origin: file or hub id.
        kind: of the data set, as far as it is known.
        report: told how many rows there are so far.

    Raises:
        DataError: no rows; or of all rows that cannot be used how many there are, and what the
            first are: a text that is empty or no string, a label that is missing or neither a
            string nor a whole number, a lone surrogate in either, a kept value that is no string.
    """
    kind.check(Texts.kind)
    refuse_unused(config, OF_MEDIA, origin)
    labels = Labels(table.class_names, strip=config.strip_labels)
    texts, cells, bad, skipped = TextSpool(), Cells(columns, labels), BadRows(origin), TextSpool()
    limit = None if config.test_fraction is not None else config.limit  # of splits, when made
    total = 0
    for place, record in counting(table.records(columns), report, f"reading {origin}"):
        total += 1
        try:
            if isinstance(record, DataError):
                raise record
            text = text_of(record, columns.inputs)
            if text is not None:
                cells.add(record)
                texts.append(text)
            elif config.skip_empty:
                skipped.append(place)
                total -= 1
            else:
                raise empty_text(record, columns.inputs)
        except DataError as error:
            bad.add(place, error)
        if total == limit:
            break
    bad.refuse(total)
    if not texts:
        raise no_rows(origin, len(skipped))
    return Texts(
        inputs=texts,
        labels=cells.labels,
        class_names=labels.class_names,
        origin=origin,
        kept=cells.kept,
        skipped=skipped,
        labelled=columns.label is not None,
    )


def no_rows(origin: str, skipped: int = 0) -> DataError:
    """The refusal of a data set of which nothing is left."""
    return DataError(
        "no rows",
        expected="at least one row",
        found=f"{skipped:,} of which nothing is to be encoded" if skipped else None,
        where=origin,
    )
