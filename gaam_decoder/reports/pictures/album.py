"""What of a report a page has room for: which pictures, and what it says once."""

from __future__ import annotations

from collections.abc import Sequence

from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.pictures.pictures import (
    DETAILED,
    curves,
    has_curves,
    most_accurate,
    overviews,
    pictures,
)
from gaam_decoder.reports.pictures.row_pictures import row_pictures
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.layout import large

MOST_PICTURES = 20
"""Of a page of a large report."""


class Album:
    """Which pictures a page has room for: all, or of a large report the most telling of each table.

    Args:
        tables: of the page.
        bare: whether there is room for none.
    """

    def __init__(self, tables: Sequence[Table], *, bare: bool = False) -> None:
        self.bare = bare
        self.large = bare or large(tables)
        self.detailed = 1 if self.large else DETAILED
        """Rows of a table that get pictures of their own."""
        self._room = 0 if bare else MOST_PICTURES
        self._said: set[str] = set()

    def of(self, table: Table) -> list[Picture]:
        """Those of a table."""
        if not self.large:
            return list(pictures(table))
        if self.bare or not table.rows:
            return []
        held_out = list(curves(table))[-1:] if has_curves(table) else []
        labels = table.labels()
        of_rows = [
            picture
            for place in most_accurate(table, self.detailed)
            for picture in row_pictures(
                table.rows[place], labels[place], table.cache["class_names"]
            )
        ]
        return self.taken([*overviews(table), *held_out, *of_rows])

    def first(self, text: str) -> bool:
        """Whether this has to be said: on a page that is large, only the first time."""
        again = self.large and text in self._said
        self._said.add(text)
        return not again

    def taken(self, found: Sequence[Picture]) -> list[Picture]:
        """The first of these, as far as there is room; of a page that is not large, all."""
        if not self.large:
            return list(found)
        shown = list(found[: self._room])
        self._room -= len(shown)
        return shown
