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

from gaam_cache.messages import brief, visible
from gaam_decoder.reports.answer import conclusion
from gaam_decoder.reports.notes import caused
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.table import SEPARATE, Format, Table
from gaam_decoder.reports.writing import sheets
from gaam_decoder.reports.writing.section import Section, sections

PLAIN_WIDTH = 120
"""Width where the output is no terminal and COLUMNS does not say."""
LEAST_WIDTH = 80
"""On a narrower screen lines wrap: in a narrower table numbers would be cut."""
MOST_NOTES = 6
LONGEST_NAME = 20
LONGEST_PART = 60
"""Characters of each line in the column of decoders, which it may fold."""
ALIASES = ("text", "txt", "table", "console")
COLUMNS = {
    "sd": "sd",
    "95% CI + rows": "95% CI",
    "seeds": "seeds",
    "difference": "diff",
    "of difference": "95% CI",
    "p Holm": "p\nHolm",
    "verdict": "verdict",
    "parameters (attn / total)": "params\nattn/all",
    "s/seed": "s per\nseed",
}
"""Beside the score, with the header of each; intervals are over seeds and test rows."""
DISPENSABLE = ("s/seed", "parameters (attn / total)", "p Holm", "seeds", "sd")
"""What goes first where the screen is too narrow."""
HOW = "95% intervals are over seeds and test rows; those of differences are corrected (Holm)"


class Terminal(Format):
    """The answer, one table drawn by rich, and at most six notes that these runs caused."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        console = Console(file=stream, width=None if known else PLAIN_WIDTH, highlight=False)
        console.width = max(console.width, LEAST_WIDTH)
        for number, table in enumerate(tables):
            if number:
                console.print()
            _write(table, console)
        if len(tables) > 1:
            _say(console, f"{len(tables)} separate tables: {SEPARATE}")


def _write(table: Table, console: Console) -> None:
    _say(console, table.title(), style="bold")
    _say(console, conclusion(table) + ".")
    if table.rows:
        console.print(_drawn(*_cells(table), console), "")
    heads = {row.head for row in table.rows if not table.shows_head(row)}
    head = f", head {brief(heads.pop())}" if heads else ""
    how = sheets.accuracies(table).caption + head + f"; {HOW}" if table.rows else ""
    how += SCALED if table.temperature and SCALED not in how else ""
    how += f"; differences to {brief(str(table.baseline))}" if any(table.comparisons) else ""
    for line in filter(
        None, [how, table.left_out(), *[final.in_words() for final in table.finals]]
    ):
        _say(console, line)
    notes = caused(table)
    for note in notes[:MOST_NOTES]:
        _say(console, f"- {note}")
    further = sections(table)
    for section in further:
        _write_section(section, table, console)
    more = f"{len(notes) - MOST_NOTES} more notes, " if len(notes) > MOST_NOTES else ""
    names = ", ".join(one.name for one in further if not one.verbatim)
    if more or names:
        _say(console, f"more in --format html, markdown and json: {more}{names}")
    for section in further:
        if section.verbatim:
            _say(console, f"{section.heading.lower()}: {section.verbatim}")


def _write_section(section: Section, table: Table, console: Console) -> None:
    """What a sweep was for, in one line, and pairs whole where they were asked for."""
    asked = section.name == "pairs" and table.pairs and table.pairs.family.axis != "attn"
    if asked or not section.folded:
        _say(console, f"{section.heading}: {section.lead}")
    for sheet in section.sheets if asked else ():
        rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
        for name in sheet.header:
            words = name in sheet.words
            justify = "left" if words else "right"
            rich_table.add_column(_text(name), justify=justify, no_wrap=not words)  # type: ignore[arg-type]
        for line in sheet.lines:
            rich_table.add_row(*map(_text, line))
        _say(console, sheet.caption, style="bold")
        console.print(rich_table, "")


def _cells(table: Table) -> tuple[dict[str, str], list[tuple[str, dict[str, str]]]]:
    """Headers by column, and of every row that is shown its name and cells by column."""
    column = table.unit.column
    shown = {column: column.replace("accuracy", "acc").replace(" ", "\n", 1), **COLUMNS}
    compared = sheets.differences(table)
    made = iter(compared.dicts() if compared else ())
    lines = []
    settings = table.settings()
    for place, cells in zip(table.places, sheets.accuracies(table).dicts(), strict=True):
        row = table.rows[place]
        counts = (row.parameters["attention"], row.parameters["total"])
        cells["parameters (attn / total)"] = "/".join(map(_short, counts))
        if row.failed:
            cells["seeds"] = f"{len(row.scores.seeds)}/{len(row.seeds)}"
        if table.comparisons[place] is not None:
            difference = next(made)
            cells |= {k: difference[k] for k in ("difference", "p Holm", "verdict")}
            cells["of difference"] = difference["95% CI + rows"]
        lines.append((_label(row, table, settings[place]), cells))
    if compared is None:
        shown = {k: v for k, v in shown.items() if k in lines[0][1]} if lines else shown
    return shown, lines


def _drawn(
    shown: dict[str, str], lines: list[tuple[str, dict[str, str]]], console: Console
) -> RichTable:
    """The table with as many columns as fit."""
    shown = dict(shown)
    for name in DISPENSABLE:
        names = max(_width(name) for name, _ in lines)
        columns = [
            max(_width(header), *(_width(cells.get(key, "")) for _, cells in lines)) + 2
            for key, header in shown.items()
        ]
        if names + 2 + sum(columns) <= console.width:
            break
        shown.pop(name, None)
    rich_table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    rich_table.add_column("decoder", overflow="fold")
    for key, header in shown.items():
        justify = "left" if key == "verdict" else "right"
        rich_table.add_column(_text(header, keep="\n"), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name, cells in lines:
        values = [cells.get(key, "") for key in shown]
        rich_table.add_row(*(_text(value, keep="\n") for value in (name, *values)))
    return rich_table


def _label(row: Row, table: Table, settings: str) -> str:
    """Name of a decoder, and below it whatever tells it from the others of the table."""
    name, _, options = row.attention.partition(":")
    below = [*options.split(","), *settings.split(", ")]
    if row.on_training_rows:
        below += ["tested on its own", "training rows"]
    if row.select == "test":
        below += ["select=test:", "optimistic"]
    elif len({r.select for r in table.rows}) > 1:
        below.append(f"select={row.select}")
    if table.shows_head(row):
        below.insert(0, f"+ {row.head}")
    parts = [brief(part, LONGEST_PART) for part in [name, *below] if part]
    lines = parts[:1]
    for part in parts[1:]:  # what fits beside the name stands there
        joint = ":" if len(lines) == 1 and part in options.split(",") else " "
        if len(lines[-1]) + len(joint) + len(part) <= LONGEST_NAME and lines[-1][:1] != " ":
            lines[-1] += joint + part
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line that wraps at words, at the width of a table where the screen is wider."""
    console.print(_text(text), style=style, soft_wrap=not console.is_terminal)


def _text(text: str, *, keep: str = "") -> Text:
    """Text as it is: nothing in it is markup, an emoji code, or anything else but text."""
    return Text(visible(text, keep=keep))


def _short(count: int) -> str:
    """``591360`` as ``591k``."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)
