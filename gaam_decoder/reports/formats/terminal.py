"""A table for the terminal that stays whole in 80 columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gaam_cache.messages.foreign_text import brief, visible
from gaam_decoder.reports import _finals, _learned, _sheets
from gaam_decoder.reports._base import SEPARATE, Format, Table
from gaam_decoder.reports._claims import claims, conclusion
from gaam_decoder.reports._notes import notes
from gaam_decoder.reports._rows import Row
from gaam_decoder.reports._section import Section, sections
from gaam_decoder.reports._sheets import Sheet

PLAIN_WIDTH = 120
"""Width where the output is no terminal and COLUMNS does not say."""
LEAST_WIDTH = 80
"""On a narrower screen lines wrap: in a narrower table numbers would be cut."""
LONGEST_NAME = 20
LONGEST_PART = 60
"""Characters of each line in the column of decoders, which it may fold."""
ACCURACY = {
    "accuracy %": "acc %",
    "sd": "sd",
    "95% CI seeds": "95% CI\nseeds",
    "95% CI + rows": "95% CI\n+ rows",
    "macro-F1 %": "F1 %",
    "parameters (attn / total)": "params\nattn/all",
    "s/seed": "s per\nseed",
    "seeds": "seeds",
}
"""Columns that are shown, and headers short enough for them."""
INTERVAL = "95% CI\n"
DIFFERENCE = {
    "difference": "diff",
    "95% CI + rows": "95% CI\n+ rows",
    "95% CI on these rows": "95% CI\nthese rows",
    "p Holm": "p\nHolm",
    "verdict": "verdict",
    "p on these rows": "p these\nrows",
    "pairs": "pairs",
}

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
            _say(console, f"{len(tables)} separate tables: {SEPARATE}")

    def _write(self, table: Table, console: Console) -> None:
        _say(console, table.title(), style="bold")
        if lead := conclusion(table):
            _say(console, lead)
        if table.rows:
            console.print(_fitting(*_accuracies(table), console), "")
        for line in _finals.lines(table):
            _say(console, line)
        if table.covered:  # what there is to say stands below the table over all folds
            return
        compared = _sheets.differences(table)
        if compared:
            _say(console, compared.caption, style="bold")
            console.print(_fitting(*_differences(table, compared), console), "")
            for claim in claims(table):
                _say(console, f"- {claim}")
        if heads := {row.head for row in table.rows if not table.shows_head(row)}:
            _say(console, f"head: {brief(heads.pop())}")
        for note in notes(table):
            _say(console, note)
        _write_learned(table, console)
        for section in sections(table):
            _write_section(section, console)


def _accuracies(table: Table) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of cells, the decoder not among the headers."""
    sheet = _sheets.accuracies(table)
    shown = ACCURACY | ({"published %": "publ.\n%"} if "published %" in sheet.header else {})
    if "published %" in shown:
        shown.pop("s/seed")  # what others found is of more interest than the time
    rows = []
    for row, cells, setting in zip(table.rows, sheet.dicts(), table.settings(), strict=True):
        counts = (row.parameters["attention"], row.parameters["total"])
        cells["parameters (attn / total)"] = "/".join(map(_short, counts))
        if row.failed:
            cells["seeds"] = f"{len(row.scores.seeds)}/{len(row.seeds)}"
        if "published %" in cells:
            cells["published %"] = cells["published %"].partition(" ")[0]
        rows.append([_label(row, table, setting), *(cells[name] for name in shown)])
    return list(shown.values()), rows


def _differences(table: Table, sheet: Sheet) -> tuple[list[str], list[list[str]]]:
    labels = [
        _label(row, table, setting)
        for row, setting, comparison in zip(
            table.rows, table.settings(), table.comparisons, strict=True
        )
        if comparison is not None
    ]
    shown = DIFFERENCE | ({"p training": "p\ntraining"} if "p training" in sheet.header else {})
    rows = []
    for label, cells in zip(labels, sheet.dicts(), strict=True):
        rows.append([label, *(cells[name] for name in shown)])
    return list(shown.values()), rows


def _fitting(headers: list[str], rows: list[list[str]], console: Console) -> RichTable:
    """A table; where the screen is too narrow for it, the second interval is below the first.

    The two stand beside one another.
    """
    widest = [max(column, key=_width) for column in zip(*rows, strict=True)]
    measured = console.measure(
        _drawn(headers, [widest]), options=console.options.update(width=1000)
    )
    if measured.maximum <= console.width:
        return _drawn(headers, rows)
    place = next(place for place, header in enumerate(headers) if header.startswith(INTERVAL))
    both = "/".join(
        header.removeprefix(INTERVAL).removeprefix("+ ") for header in headers[place : place + 2]
    )
    headers = [*headers[:place], f"{INTERVAL}{both}", *headers[place + 2 :]]
    rows = [
        [*row[: place + 1], f"{row[place + 1]}\n{row[place + 2]}", *row[place + 3 :]]
        for row in rows
    ]
    return _drawn(headers, rows)


def _width(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))


def _drawn(headers: list[str], rows: list[list[str]]) -> RichTable:
    rich_table = _empty(headers)
    for row in rows:
        rich_table.add_row(*map(_cell, row))
    return rich_table


def _empty(headers: list[str]) -> RichTable:
    rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    rich_table.add_column("decoder", overflow="fold")
    for header in headers:
        rich_table.add_column(_cell(header), justify="right", no_wrap=True)
    return rich_table


def _label(row: Row, table: Table, settings: str) -> str:
    """Name of a decoder, and below it whatever tells it from the others of the table."""
    name, _, options = row.attention.partition(":")
    below = [*options.split(","), *settings.split(", ")]
    if row.on_training_rows:
        below += ["tested on its own", "training rows"]
    if row.select == "test":
        below.append("select=test:")
        below.append("optimistic")
    elif len({r.select for r in table.rows}) > 1:
        below.append(f"select={row.select}")
    if table.shows_head(row):
        if len(f"{name} + {row.head}") <= LONGEST_NAME:
            name = f"{name} + {row.head}"
        else:
            below.insert(0, f"+ {row.head}")
    parts = [brief(part, LONGEST_PART) for part in [name, *below] if part]
    return "\n  ".join(parts)


def _write_learned(table: Table, console: Console) -> None:
    if not any(row.learned for row in table.rows):
        return
    rich_table = _empty([*_learned.HEADER[:-1], "sd of\nmedians"])
    rich_table.columns[1].justify = "left"
    for row, settings in zip(table.rows, table.settings(), strict=True):
        if lines := _learned.cells(row):
            stacked = ["\n".join(column) for column in zip(*lines, strict=True)]
            rich_table.add_row(*map(_cell, [_label(row, table, settings), *stacked]))
    console.print()
    _say(console, _learned.TITLE, style="bold")
    console.print(rich_table, "")
    _say(console, "sd of medians: over seeds, of each seed's median")
    for note in _learned.notes(table.rows):
        _say(console, note)


def _write_section(section: Section, console: Console) -> None:
    """A folded one is its first line; --format html or markdown shows all of it."""
    if section.verbatim:
        _say(console, f"{section.heading.lower()}: {section.verbatim}")
        return
    _say(console, f"{section.heading}: {section.lead}")
    if section.folded:
        return
    for sheet in section.sheets:
        _say(console, sheet.caption, style="bold")
        drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
        for name in sheet.header:
            left = name in sheet.words
            drawn.add_column(
                _cell(name), justify="left" if left else "right", overflow="fold", no_wrap=not left
            )
        for cells in sheet.lines:
            drawn.add_row(*map(_cell, cells))
        console.print(drawn, "")
    for line in section.lines:
        _say(console, f"- {line}")


def _say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line that wraps at words, at the width of a table where the screen is wider."""
    console.print(_text(text), style=style, soft_wrap=not console.is_terminal)


def _text(text: str, *, keep: str = "") -> Text:
    """Text as it is: nothing in it is markup, an emoji code, or anything else but text."""
    return Text(visible(text, keep=keep))


def _cell(text: str) -> Text:
    """A cell of several lines; what names are made of was made visible where they were joined."""
    return _text(text, keep="\n")


def _short(count: int) -> str:
    """``591360`` as ``591k``."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)
