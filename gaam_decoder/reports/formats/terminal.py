"""What a person reads first: one screen of 80 columns or more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief, did_you_mean, visible
from gaam_decoder.reports.columns import (
    DISPENSABLE,
    SCREEN,
    Sheet,
    of_score,
    shown,
)
from gaam_decoder.reports.drawing import names_of
from gaam_decoder.reports.notes import caused, conclusion
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.sections._base import Section, sections, signature
from gaam_decoder.reports.table import AT_EDGE, ON_TRAINING_ROWS, SEPARATE, Format, Table

PLAIN_WIDTH = 120
"""Width where the output is no terminal and COLUMNS does not say."""
LEAST_WIDTH = 80
"""On a narrower screen lines wrap: in a narrower table numbers would be cut."""
MOST_NOTES = 6
LONGEST_NAME = 20
"""Characters of each line in the column of decoders, which it may fold."""
ALIASES = ("text", "txt", "table", "console")
HOW = "95% intervals are over seeds and test rows; those of differences are corrected (Holm)"


class Terminal(Format):
    """The answer, one table drawn by rich, and at most six notes that these runs caused.

    Args:
        section: the name of one section, which stands alone then.
    """

    def __init__(self, section: str | None = None) -> None:
        self._section = section

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream.

        Raises:
            ConfigError: no table has that section.
        """
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        # in a notebook rich would show what it draws, leave the text empty, and colour it
        console = Console(
            file=stream,
            width=None if known else PLAIN_WIDTH,
            highlight=False,
            force_jupyter=False,
            force_terminal=stream.isatty(),
        )
        console.width = max(console.width, LEAST_WIDTH)
        every = [sections(table) for table in tables]
        names = list(dict.fromkeys(section.name for of in every for section in of))
        if self._section and self._section not in names:
            raise ConfigError(
                f"these runs have no section '{self._section}'",
                expected=f"one of: {', '.join(names)}",
                hint=did_you_mean(self._section, names),
            )
        for number, (table, of_table) in enumerate(zip(tables, every, strict=True)):
            if number:
                console.print()
            _say(console, table.title(), style="bold")
            if not self._section:
                _write(table, of_table, console)
            for section in of_table:
                if section.name != self._section:
                    continue
                _say(console, section.heading + (f": {section.lead}" if section.lead else ""))
                for sheet in section.sheets:
                    _draw_sheet(sheet, console)
                for line in section.lines:
                    _say(console, f"- {line}")
                if count := len(section.pictures):
                    _say(console, f"pictures in --format html and --figures: {count}")
        if len(tables) > 1:
            _say(console, f"{len(tables)} separate tables: {SEPARATE}")


def _write(table: Table, further: list[Section], console: Console) -> None:
    _say(console, conclusion(table) + ".")
    if table.rows:
        console.print(_main(table, console), "")
        heads = {f", head {brief(row.head)}" for row in table.rows if not table.shows_head(row)}
        how = f"{of_score(table)}{''.join(heads)}; {HOW}"
        how += SCALED if table.temperature and SCALED not in how else ""
        how += f"; differences to {brief(str(table.baseline))}" if table.compared else ""
        _say(console, how)
    notes = caused(table)
    for line in (*table.beside(), *(f"- {note}" for note in notes[:MOST_NOTES])):
        _say(console, line)
    for one in further:
        asked = one.name == "pairs" and table.pairs and table.pairs.axis != "attn"
        if asked or one.said:
            _say(console, f"{one.heading}: {one.lead}")
        for sheet in one.sheets if asked else ():
            _draw_sheet(sheet, console)
    if len(notes) > MOST_NOTES:
        _say(console, f"{len(notes) - MOST_NOTES} more notes in --format html, markdown and json")
    if further:
        _say(console, f"more by --section NAME: {', '.join(one.name for one in further)}")
    _say(console, f"signature: {signature(table)}")


def _draw_sheet(sheet: Sheet, console: Console) -> None:
    """A table in as many parts as its columns need, each with the first."""
    _say(console, sheet.caption, style="bold")
    width = [max(map(_width, texts)) + 2 for texts in zip(sheet.header, *sheet.lines, strict=True)]
    rest = list(range(1, len(width)))
    while rest:
        room, some = console.width - width[0], [0]
        while rest and (len(some) == 1 or width[rest[0]] <= room):
            some.append(rest.pop(0))
            room -= width[some[-1]]
        header = [(name, name in sheet.words) for name in (sheet.header[place] for place in some)]
        console.print(_drawn(header, [[line[place] for place in some] for line in sheet.lines]), "")


def _drawn(header: Sequence[tuple[str, bool]], lines: Sequence[Sequence[str]]) -> RichTable:
    """A table of names of columns, whether each is of words, and lines; the first may be folded."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    drawn.add_column(_text(header[0][0]), overflow="fold")
    for name, words in header[1:]:
        drawn.add_column(_text(name), justify="left" if words else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*map(_text, line))
    return drawn


def _main(table: Table, console: Console) -> RichTable:
    """The table with as many columns as fit."""
    names = names_of([_label(table, row) for row in table.shown], LONGEST_NAME)
    names = [name.replace("\n", "\n  ") for name in names]
    columns, lines = shown(table, SCREEN, narrow=True)
    score = table.unit.column.replace("accuracy", "acc").replace(" ", "\n", 1)
    header = {one: one.short.format(score=score) for one in columns}
    width = {
        one: max(map(_width, [header[one], *(line[one] for line in lines)])) + 2 for one in columns
    }
    for column in DISPENSABLE:
        if max(map(_width, names)) + 2 + sum(width.values()) <= console.width:
            break
        width.pop(column, None)
    rows = [[name, *(of[one] for one in width)] for name, of in zip(names, lines, strict=True)]
    return _drawn([("decoder", True), *((header[one], one.words) for one in width)], rows)


def _label(table: Table, row: Row) -> str:
    """Name of a decoder, and whatever tells it from the others of the table."""
    varied = row.select == "test" or len({r.select for r in table.rows}) > 1
    parts = [
        row.attention,
        f"+ {row.head}" * table.shows_head(row),
        row.settings.replace(AT_EDGE, AT_EDGE.strip()).replace(", ", " "),
        f"({ON_TRAINING_ROWS})" * row.on_training_rows,
        f"select={row.select}" * varied + " (optimistic)" * (row.select == "test"),
    ]
    return " ".join(brief(part, 100) for part in parts if part)


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line that wraps at words where the screen ends."""
    console.print(Text(visible(text)), style=style, soft_wrap=not console.is_terminal)


def _text(text: str) -> Text:
    """A cell as it is: nothing in it is markup, an emoji code, or anything else but text."""
    return Text(visible(text, keep="\n"))
