"""A part of a report beyond accuracies and differences, which every format shows in its way.

A module in this folder defines one class derived from ``Writer``, and is listed nowhere else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import gaam_cache
from gaam_cache import plugins
from gaam_cache.store.digest import digest_of, short_digest
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.table import Table

PACKAGE = "gaam_decoder.reports.sections"
Parts = tuple[Sequence[Sheet], Sequence[Picture]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one section has to say of a table."""

    name: str
    """What ``gaam report --section`` takes; a key of the JSON."""
    heading: str
    lead: str = ""
    """One sentence, without its full stop. What has none is in no JSON, which has it elsewhere."""
    said: bool = False
    """Whether a terminal says the lead: what a sweep was for."""
    lines: Sequence[str] = ()
    """What has to be read with it."""
    values: Any = None
    """The same for programs, as JSON values; fractions, not percent."""
    parts: Callable[[], Parts]
    """Its tables and pictures, made where they are shown: they read what runs hold of each seed."""

    @cached_property
    def _made(self) -> Parts:
        return self.parts()

    @property
    def sheets(self) -> Sequence[Sheet]:
        """Its tables."""
        return self._made[0]

    @property
    def pictures(self) -> Sequence[Picture]:
        """Its pictures."""
        return self._made[1]


class Writer(ABC):
    """Makes sections of a table."""

    place: ClassVar[int]
    """Sections stand in this order."""

    @abstractmethod
    def of(self, table: Table) -> Iterator[Section]:
        """Those of which there is something to say."""


def sections(table: Table) -> list[Section]:
    """All sections of a table, in their order; none without rows."""
    if not table.rows:
        return []
    writers: list[Writer] = [
        plugins.load(PACKAGE, name, kind="section")() for name in plugins.names(PACKAGE)
    ]
    writers.sort(key=lambda writer: writer.place)
    return [section for writer in writers for section in writer.of(table)]


def signature(table: Table) -> str:
    """Version, and a digest of recipes, cache and seeds, in however many runs they lie.

    Who trains the same runs, by the config.toml of each, gets the same line.
    """
    seeds = sorted({(run.key, seed) for run in table.all_runs() for seed in run.seeds})
    digest = short_digest(digest_of(json.dumps(seeds).encode()))
    recipes = len({key for key, _ in seeds})  # a key is of mechanism, recipe and cache
    return f"gaam {gaam_cache.__version__} | {recipes} recipes, {len(seeds)} seeds | {digest}"


def most_accurate(table: Table, count: int | None = None) -> list[Row]:
    """Rows with the highest mean, the best first."""
    return sorted(table.rows, key=lambda row: -(row.mean or 0.0))[:count]
