"""A table for the terminal that stays whole in 80 columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from gaam_cache.messages import brief
from gaam_decoder.reports.notes.claims import claims, conclusion
from gaam_decoder.reports.notes.notes import notes
from gaam_decoder.reports.table import final_models, layout
from gaam_decoder.reports.table.base import SEPARATE, Format, Table
from gaam_decoder.reports.writing import learned_table, sheets, terminal_tables
from gaam_decoder.reports.writing.drawn import cell, empty, fitting, of_sheet, say
from gaam_decoder.reports.writing.section import Section, sections

PLAIN_WIDTH = 120
"""Width where the output is no terminal and COLUMNS does not say."""
LEAST_WIDTH = 80
"""On a narrower screen lines wrap: in a narrower table numbers would be cut."""
ALIASES = ("text", "txt", "table", "console")


class Terminal(Format):
    """Tables drawn by rich; head, options and settings stand below the name of the mechanism."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        console = Console(file=stream, width=None if known else PLAIN_WIDTH, highlight=False)
        console.width = max(console.width, LEAST_WIDTH)
        for number, table in enumerate(tables):
            if number:
                console.print()
            self._write(table, console)
        if len(tables) > 1:
            say(console, f"{len(tables)} separate tables: {SEPARATE}")

    def _write(self, table: Table, console: Console) -> None:
        say(console, table.title(), style="bold")
        if lead := conclusion(table):
            say(console, lead)
        if table.rows:
            console.print(fitting(*terminal_tables.accuracies(table), console), "")
        if hidden := layout.left_out(table):
            say(console, hidden)
        for line in final_models.lines(table):
            say(console, line)
        compared = sheets.differences(table)
        if compared:
            say(console, compared.caption, style="bold")
            console.print(fitting(*terminal_tables.differences(table, compared), console), "")
            for claim in claims(table):
                say(console, f"- {claim}")
        if heads := {row.head for row in table.rows if not table.shows_head(row)}:
            say(console, f"head: {brief(heads.pop())}")
        for note in notes(table):
            say(console, note)
        _write_learned(table, console)
        for section in sections(table):
            _write_section(section, console)


def _write_learned(table: Table, console: Console) -> None:
    if not any(row.learned for row in table.rows):
        return
    rich_table = empty([*learned_table.HEADER[:-1], "sd of\nmedians"])
    rich_table.columns[1].justify = "left"
    names = terminal_tables.names(table)
    for place in table.places:
        if lines := learned_table.cells(table.rows[place]):
            stacked = ["\n".join(column) for column in zip(*lines, strict=True)]
            rich_table.add_row(*map(cell, [names[place], *stacked]))
    console.print()
    say(console, learned_table.TITLE, style="bold")
    console.print(rich_table, "")
    say(console, "sd of medians: over seeds, of each seed's median")
    for note in learned_table.notes(table.rows):
        say(console, note)


def _write_section(section: Section, console: Console) -> None:
    """A folded one is its first line; --format html or markdown shows all of it."""
    if section.verbatim:
        say(console, f"{section.heading.lower()}: {section.verbatim}")
        return
    say(console, f"{section.heading}: {section.lead}")
    if section.folded:
        return
    for sheet in section.sheets:
        say(console, sheet.caption, style="bold")
        console.print(of_sheet(sheet), "")
    for line in section.lines:
        say(console, f"- {line}")
