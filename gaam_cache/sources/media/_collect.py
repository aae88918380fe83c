"""Rows out of a table that names files, or holds them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import CLIP_OF
from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._bad_rows import BadRows
from gaam_cache.sources._collect import Cells, no_rows
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._spool import ByteSpool, TextSpool
from gaam_cache.sources._table import Columns, Record, Table
from gaam_cache.sources._texts import is_blank
from gaam_cache.sources._values import Labels, kept_text
from gaam_cache.sources.media._base import Media, Medium
from gaam_cache.sources.media._in_order import in_order
from gaam_cache.sources.media._items import Items, Place, note
from gaam_cache.sources.media._look import Looker, Named, Stored
from gaam_cache.terminal import Report, counting, silent

ROWS_PER_REPORT = 32
"""Each is decoded, which takes some milliseconds."""
OF_A_KIND = ("clip_seconds", "clip_mode")
"""Settings that say something for some kinds alone."""


class _Row(NamedTuple):
    """A record on its way to a row."""

    where: str
    what: Named | Stored | DataError | None
    """None: nothing is there, and it is left out."""
    record: Mapping[str, Any]


def collect_media(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    *,
    folder: Path,
    origin: str,
    kind: OneKind,
    listed: bool = False,
    anywhere: bool = False,
    report: Report = silent,
) -> Media:
    """Turn records into rows of sounds or pictures; each is decoded once, to see that it can be.

    Args:
        table: the records.
        columns: those that make a row.
        config: says what is left out, and the limit.
        folder: paths are relative to it.
        origin: file or hub id.
        kind: of the data set, as far as it is known.
        listed: the paths were found there, and nobody wrote them.
        anywhere: absolute paths are those of whoever made the table on this machine.
        report: told how many rows there are so far.

    Raises:
        DataError: no rows; or of all that cannot be used how many there are, and the first.
        ConfigError: a setting plays no part for rows of this kind, or a package is missing.
        StorageError: there is no room for what the table holds.
    """
    store = ByteSpool()
    place = Place(folder.absolute(), store, origin)
    looker = Looker(place, config, anywhere=anywhere)
    labels = Labels(table.class_names, strip=config.strip_labels)
    cells, bad, skipped = Cells(columns, labels), BadRows(origin), TextSpool()
    facts, units, pieces, medium = TextSpool(), array("q"), TextSpool(), None
    limit = None if config.test_fraction is not None else config.limit
    total = unit = 0
    rows = _rows(table.records(columns), columns.inputs[0], store, config, listed=listed)
    looked = in_order(lambda row: None if row.what is None else looker.look(row.what), rows)
    for row, found in counting(looked, report, f"reading {origin}", every=ROWS_PER_REPORT):
        if found is None:
            skipped.append(row.where)
            continue
        total += 1
        try:
            if isinstance(found, DataError):
                raise found
            kind.check(found.medium.rows.kind)
            medium = medium or _checked(found.medium, config, origin)
            taken = found.facts[: None if limit is None else limit - len(facts)]
            clip = ""
            if config.clip_mode == "split":
                clip = kept_text(found.about.get("path") or row.where, CLIP_OF)
            cells.add(row.record, len(taken))
        except DataError as error:
            bad.add(row.where, error)
        else:
            for fact in taken:
                note(facts, found.about, fact)
                units.append(unit)
                pieces.append(clip)
            unit += 1
        if limit is not None and max(total, len(facts)) >= limit:
            break
    bad.refuse(total)
    if medium is None:
        raise no_rows(origin, len(skipped))
    kept: dict[str, Sequence[str]] = dict(cells.kept)
    if config.clip_mode == "split":
        kept[CLIP_OF] = pieces
    if not store.size:
        place = place._replace(store=None)
    return medium.rows(
        inputs=Items(medium, facts, place, units),
        labels=cells.labels,
        class_names=labels.class_names,
        origin=origin,
        kept=kept,
        skipped=skipped,
        labelled=columns.label is not None,
    )


def _checked(medium: type[Medium], config: ExtractConfig, origin: str) -> type[Medium]:
    refuse_unused(config, [name for name in OF_A_KIND if name not in medium.reads], origin)
    return medium


def _rows(
    records: Iterator[Record],
    column: str,
    store: ByteSpool,
    config: ExtractConfig,
    *,
    listed: bool,
) -> Iterator[_Row]:
    for where, record in records:
        if isinstance(record, DataError):
            yield _Row(where, record, {})
            continue
        cell = record[column]
        what = _what(cell, where, store, listed=listed)
        if isinstance(what, Stored) and not what.size and config.skip_empty:
            what = None
        if what is None and not config.skip_empty:
            what = DataError(
                "no file is named",
                expected=f"a path in column '{column}'",
                found=excerpt(cell),
                hint="remove such rows, leave them out (--set skip-empty=true) or name another "
                "with --file-column",
            )
        if isinstance(what, Named):
            yield _Row(where if listed else f"{where}, {excerpt(what.path)}", what, record)
        else:  # what is stored needs no second place
            yield _Row(where, what, {**record, column: None})


def _what(
    cell: Any, where: str, store: ByteSpool, *, listed: bool
) -> Named | Stored | DataError | None:
    """What a cell holds; None where that is nothing."""
    if isinstance(cell, Mapping):
        content, path = cell.get("bytes"), cell.get("path")
        where += f", {excerpt(path)}" if content is not None and path else ""
        cell = path if content is None else content
    if isinstance(cell, bytes):
        return Stored(store.append(cell), len(cell), where)
    if isinstance(cell, str):
        return None if is_blank(cell) else Named(cell, listed)
    if cell is None:
        return None
    return DataError(
        "a cell names no file",
        expected="a path",
        found=f"{excerpt(cell)} ({type(cell).__name__})",
        hint="name another column with --file-column",
    )
