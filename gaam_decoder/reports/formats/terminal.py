"""What a person reads first: one screen of 80 columns or more."""

import os
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gaam_cache.common.messages import brief, visible
from gaam_decoder.reports.columns import (
    DISPENSABLE,
    SCREEN,
    Column,
    Sheet,
    marks,
    of_score,
    sheet,
)
from gaam_decoder.reports.notes import below, caused, warnings
from gaam_decoder.reports.sections.base import Section, answers, sections_of, signature
from gaam_decoder.reports.table import AT_EDGE, SEPARATE, Format, Table

PLAIN_WIDTH = 120  # where the output is no terminal and COLUMNS does not say
LEAST_WIDTH = (
    80  # on a narrower screen lines wrap: in a narrower table numbers would be cut
)
MOST_NOTES = 6
LONGEST_NAME = (
    20  # characters that the column of decoders has at least, which rich folds
)
ALIASES = ("text", "txt", "table", "console")


class Terminal(Format):
    """The answer, one table drawn by rich, and at most six notes; or the ``section`` of a name."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        # in a notebook rich would show what it draws, leave the text empty, and colour it
        console = Console(
            file=stream,
            width=None if known else PLAIN_WIDTH,
            highlight=False,
            force_jupyter=False,
            force_terminal=stream.isatty(),
        )
        # a section is as wide as it is: what does not fit, the screen wraps
        console.width = 10_000 if self.section else max(console.width, LEAST_WIDTH)
        every = sections_of(tables, self.section)
        several = zip(tables, every, strict=True)
        shown = [
            (table, of_table)
            for table, of_table in several
            if of_table or not self.section
        ]
        for number, (table, of_table) in enumerate(shown):
            if number:
                console.print()
            _say(console, table.title(), style="bold")
            if not self.section:
                _write(table, of_table, console, self.columns)
                continue
            for warning in warnings(table):
                _say(console, f"- {warning}")
            for section in of_table:
                _write_section(section, console)
        if len(shown) > 1:
            _say(console, f"{len(shown)} separate tables: {SEPARATE}")


def _write(
    table: Table, further: list[Section], console: Console, columns: Sequence[Column]
) -> None:
    for answer in answers(table, further):
        _say(console, answer + ".")
    if table.rows and columns:
        # none of what was asked for is left out where the screen is narrow
        width, console.width = console.width, 10_000
        console.print(_drawn(sheet(table, columns)), "")
        console.width = width
    elif table.rows:
        console.print(_main(table, console), "")
    if table.rows:
        heads = {
            row.head for row in table.rows if f"+ {brief(row.head, 60)}" not in row.name
        }
        how = f"{of_score(table)}{''.join(f', head {brief(head)}' for head in heads)}"
        how += (
            f", differences to {brief(str(table.baseline))}" if table.compared else ""
        )
        _say(console, "; ".join([how, *below(table)[:1]]))
        for line in below(table)[1:]:
            _say(console, line)
    notes = caused(table)
    for line in (*table.beside(), *(f"- {note}" for note in notes[:MOST_NOTES])):
        _say(console, line)
    for one in further:
        if one.answers:
            _write_section(one, console)
    if len(notes) > MOST_NOTES:
        _say(
            console,
            f"{len(notes) - MOST_NOTES} more notes in --format html, markdown and json",
        )
    if further:
        _say(
            console, f"more by --section NAME: {', '.join(one.name for one in further)}"
        )
    _say(console, f"signature: {signature(table)}")


def _write_section(one: Section, console: Console) -> None:
    _say(console, one.heading + (f": {one.lead}" if one.lead else ""))
    for part in one.parts[0]:
        _say(console, part.caption, style="bold")
        console.print(_drawn(part), "")
    for line in one.lines:
        _say(console, f"- {line}")
    if one.parts[1]:
        _say(console, "its picture is in --format html and --figures")


def _drawn(sheet: Sheet) -> RichTable:
    """A table of which the first column may be folded."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    drawn.add_column(_text(sheet.header[0]), overflow="fold")
    for name in sheet.header[1:]:
        words = name in sheet.words
        drawn.add_column(
            _text(name), justify="left" if words else "right", no_wrap=True
        )
    for line in sheet.lines:
        drawn.add_row(*map(_text, line))
    return drawn


def _main(table: Table, console: Console) -> RichTable:
    names = []
    for row in table.shown:
        settings = row.settings.replace(AT_EDGE, "(edge)").replace(", ", " ")
        names.append(f"{row.name} {settings}".rstrip() + marks(row))
    score = table.unit.column.replace("accuracy", "acc").replace(" ", "\n", 1)
    drawn = {
        one: [one.short.format(score=score), *map(one.text, table.shown)]
        for one in SCREEN
        if any(map(one.text, table.shown))
    }
    width = {one: max(map(_width, texts)) + 2 for one, texts in drawn.items()}
    first = min(LONGEST_NAME, max(map(_width, names))) + 2
    for column in DISPENSABLE:
        if first + sum(width.values()) > console.width:
            width.pop(column, None)
    header, *lines = zip(
        ["decoder", *names], *(drawn[one] for one in width), strict=True
    )
    return _drawn(Sheet("", [*header], [*map(list, lines)]))


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line that wraps at words where the screen ends."""
    console.print(Text(visible(text)), style=style, soft_wrap=not console.is_terminal)


def _text(text: str) -> Text:
    """A cell as it is: nothing in it is markup, an emoji code, or anything else but text."""
    return Text(visible(text, keep="\n"))
