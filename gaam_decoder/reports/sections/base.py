"""A part of a report beyond accuracies and differences, which every format shows in its way.

A module in this folder defines one class derived from ``Writer``, and is listed nowhere else.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from gaam_cache.common import plugins
from gaam_cache.common.version import __version__
from gaam_cache.store.files import digest_of, short_digest
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.notes import conclusion
from gaam_decoder.reports.table import Table

PACKAGE = "gaam_decoder.reports.sections"
PAIRS_HINT = (
    "--pairs layers, or another setting in which rows differ, compares each with each"
)
Parts = tuple[Sequence[Sheet], Sequence[Picture]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one section has to say of a table."""

    name: str  # what gaam report --section takes; a key of the JSON
    heading: str
    lead: str = ""  # one sentence without its full stop; what has none is in no JSON
    answers: Sequence[str] = ()
    """What a reader asked for by an option, without full stops: it stands under the title."""
    lines: Sequence[str] = ()  # what has to be read with it
    values: Any = None  # the same for programs, as JSON values; fractions, not percent
    make: Callable[
        [], Parts
    ]  # when they are shown: they read what runs hold of each seed

    @cached_property
    def parts(self) -> Parts:
        """Its tables and its pictures."""
        return self.make()


class Writer(ABC):
    """Makes sections of a table."""

    place: ClassVar[int]  # sections stand in this order

    @abstractmethod
    def of(self, table: Table) -> Iterator[Section]:
        """Those of which there is something to say."""


def sections(table: Table) -> list[Section]:
    """All sections of a table, in their order; none without rows."""
    every = [
        plugins.load(PACKAGE, name, kind="section")() for name in plugins.names(PACKAGE)
    ]
    every.sort(key=lambda writer: writer.place)
    return [section for writer in every if table.rows for section in writer.of(table)]


def sections_of(
    tables: Sequence[Table], name: str | None = None
) -> list[list[Section]]:
    """The sections of every table; those of that name alone, where there is one.

    Raises:
        ConfigError: no table has a section of that name.
    """
    every = [sections(table) for table in tables]
    if name is None:
        return every
    names = list(
        dict.fromkeys(section.name for of_table in every for section in of_table)
    )
    if name not in names:
        hint = PAIRS_HINT if name == "pairs" else None
        raise plugins.unknown(
            "section of these runs", name, names, where="--section", hint=hint
        )
    return [
        [section for section in of_table if section.name == name] for of_table in every
    ]


def answers(table: Table, of_table: Sequence[Section]) -> list[str]:
    """What stands under the title: what was asked for, and the conclusion."""
    asked = [answer for section in of_table for answer in section.answers]
    if asked and not table.compared:
        return asked  # the conclusion says that nothing is compared with a baseline
    return [*asked, conclusion(table)]


def signature(table: Table) -> str:
    """Version, and a digest of recipes, cache and seeds, in however many runs they lie.

    Who trains the same runs, by the config.toml of each, gets the same line.
    """
    seeds = sorted({(run.key, seed) for run in table.runs for seed in run.seeds})
    digest = short_digest(digest_of(json.dumps(seeds).encode()))
    recipes = len({key for key, _ in seeds})  # a key is of mechanism, recipe and cache
    return f"gaam {__version__} | {recipes} recipes, {len(seeds)} seeds | {digest}"
