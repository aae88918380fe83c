"""Define a section: a part of a report below accuracies and differences.

Each module in this folder defines one class derived from ``Writer``, and is found by
its name. Every format of a report shows the same sections.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from gaam_cache.common import plugins
from gaam_cache.common.messages import counted
from gaam_cache.common.version import __version__
from gaam_cache.store.files import digest_of, short_digest
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.table import Table

PACKAGE = "gaam_decoder.reports.sections"
ENCODERS = "encoders"  # the section over all tables that compares encoders
ENCODERS_BY_SET = "encoders-sets"  # that with the pairs of every data set
HINT_BY_SECTION = {
    "pairs": "--pairs layers, or another setting in which decoders differ, compares "
    "each with each",
    ENCODERS: "--pairs encoder compares encoders that read the same rows",
}
"""What a person does to get a section that the report does not have."""


class Parts(NamedTuple):
    """The tables and the pictures of a section."""

    sheets: Sequence[Sheet]
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of a table."""

    name: str  # what gaam report --section takes; a key of the JSON
    heading: str
    lead: str = ""
    """One sentence without its full stop; a section without a lead is not in JSON."""
    answers: Sequence[str] = ()
    """Sentences without full stops, under the title, if an option such as ``--pairs``
    asked for this section."""
    lines: Sequence[str] = ()  # notes below the tables
    values: Any = None  # the section as JSON values; fractions, not percent
    make: Callable[[], Parts]
    """Makes tables and pictures; late, because they read the files of each seed."""

    @cached_property
    def parts(self) -> Parts:
        """Its tables and its pictures, made at the first use."""
        return self.make()


class Writer(ABC):
    """Makes sections of a table."""

    position: ClassVar[int]  # sections stand in this order

    @abstractmethod
    def sections_of(self, table: Table) -> Iterator[Section]:
        """Make the sections of a table that have any content."""


def sections(table: Table) -> list[Section]:
    """All sections of a table, in their order; none for a table without entries.

    Each is made by a writer, a plug-in of the folder ``reports/sections``.
    """
    writers: list[Writer] = [
        plugins.load(PACKAGE, name, kind="section")() for name in plugins.names(PACKAGE)
    ]
    if not table.entries:
        return []
    writers.sort(key=lambda writer: writer.position)
    return [section for writer in writers for section in writer.sections_of(table)]


def requested_sections(
    tables: Sequence[Table],
    name: str | None = None,
    sections_over_sets: Sequence[Section] = (),
) -> list[list[Section]]:
    """The sections of every table, or only those of a name.

    Args:
        tables: of the report.
        name: the section to write alone.
        sections_over_sets: the sections over all tables; one may have that name.

    Raises:
        ConfigError: there is no section of that name.
    """
    names_over_sets = [section.name for section in sections_over_sets]
    # the sections of tables need not be made, which reads the files of every seed
    if name in names_over_sets:
        return [[] for _ in tables]
    sections_by_table = [sections(table) for table in tables]
    if name is None:
        return sections_by_table
    names = [
        section.name
        for table_sections in sections_by_table
        for section in table_sections
    ]
    if name not in names:
        raise plugins.unknown(
            "section of these runs",
            name,
            list(dict.fromkeys([*names_over_sets, *names])),
            where="--section",
            hint=HINT_BY_SECTION.get(name),
        )
    return [
        [section for section in table_sections if section.name == name]
        for table_sections in sections_by_table
    ]


def sections_above_tables(
    sections_over_sets: Sequence[Section], name: str | None
) -> list[Section]:
    """The sections over all tables of a report; with a name, only the one called so."""
    return [section for section in sections_over_sets if name in (None, section.name)]


def answer_sentences(table: Table, table_sections: Sequence[Section]) -> list[str]:
    """The sentences under the title of a table: answers to options, and the conclusion.

    The answers are those of ``table_sections``, which are the sections of the table.
    """
    answers = [answer for section in table_sections for answer in section.answers]
    # Without a baseline the conclusion would only say that nothing is compared.
    if answers and not table.compared_entries:
        return answers
    return [*answers, conclusion(table)]


def signature(table: Table) -> str:
    """Version, and a digest of recipes, cache and seeds.

    The split of the seeds into runs does not matter: the same training, by the
    config.toml of each run, gives the same line.
    """
    seeds = sorted({(run.key, seed) for run in table.runs for seed in run.seeds})
    digest = short_digest(digest_of(json.dumps(seeds).encode()))
    # The key of a run stands for mechanism, recipe and cache.
    num_recipes = len({key for key, _ in seeds})
    trained = f"{counted(num_recipes, 'recipe')}, {counted(len(seeds), 'seed')}"
    return f"gaam {__version__} | {trained} | {digest}"
