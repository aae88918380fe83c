"""A part of a report beyond accuracies and differences, which every format shows in its way.

A module in ``sections/`` defines one class derived from ``Writer``, and is listed nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from gaam_cache import plugins
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.sheets import Sheet

PACKAGE = "gaam_decoder.reports.sections"


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What one section has to say of a table."""

    name: str
    """That of its module; a key of the JSON."""
    heading: str
    lead: str
    """One sentence, without its full stop; all that the terminal shows of a folded section."""
    verbatim: str | None = None
    """A line to be copied as it is."""
    lines: tuple[str, ...] = ()
    """What has to be read with it."""
    sheets: tuple[Sheet, ...] = ()
    pictures: tuple[Picture, ...] = ()
    folded: bool = True
    """Whether a page shows it only when it is opened."""
    values: Any = None
    """The same for programs, as JSON values; fractions, not percent."""


class Writer(ABC):
    """Makes the section of a table."""

    place: ClassVar[int]
    """Sections stand in this order."""

    @abstractmethod
    def of(self, table: Table) -> Section | None:
        """The section; None where there is nothing to say."""


def sections(table: Table) -> list[Section]:
    """All sections of a table, in their order; none without rows."""
    if not table.rows:
        return []
    writers: list[Writer] = [
        plugins.load(PACKAGE, name, kind="section")() for name in plugins.names(PACKAGE)
    ]
    made = (writer.of(table) for writer in sorted(writers, key=lambda writer: writer.place))
    return [section for section in made if section is not None]
