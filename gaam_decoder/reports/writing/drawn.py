"""Tables and lines on a terminal, which stay whole in 80 columns."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gaam_cache.messages import visible
from gaam_decoder.reports.writing.sheets import Sheet

INTERVAL = "95% CI\n"


def fitting(headers: list[str], rows: list[list[str]], console: Console) -> RichTable:
    """A table; where the screen is too narrow for it, the second interval is below the first.

    The two stand beside one another.

    Args:
        headers: of the columns but for the first.
        rows: of cells.
        console: whose screen it is.
    """
    widest = [max(column, key=_width) for column in zip(*rows, strict=True)]

    def fits(names: list[str]) -> bool:
        wide = console.options.update(width=1000)
        return console.measure(_drawn(names, [widest]), options=wide).maximum <= console.width

    if fits(headers):
        return _drawn(headers, rows)
    of_intervals = [place for place, name in enumerate(headers) if name.startswith(INTERVAL)]
    if len(of_intervals) < 2:
        return _drawn(headers, rows)
    place = of_intervals[0]
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
    rich_table = empty(headers)
    for row in rows:
        rich_table.add_row(*map(cell, row))
    return rich_table


def empty(headers: list[str]) -> RichTable:
    """A table without rows: decoders at the left, numbers at the right."""
    rich_table = _bare()
    rich_table.add_column("decoder", overflow="fold")
    for header in headers:
        rich_table.add_column(cell(header), justify="right", no_wrap=True)
    return rich_table


def of_sheet(sheet: Sheet) -> RichTable:
    """A sheet as it is; columns of words may wrap."""
    rich_table = _bare()
    for name in sheet.header:
        left = name in sheet.words
        rich_table.add_column(
            cell(name), justify="left" if left else "right", overflow="fold", no_wrap=not left
        )
    for line in sheet.lines:
        rich_table.add_row(*map(cell, line))
    return rich_table


def _bare() -> RichTable:
    return RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line that wraps at words, at the width of a table where the screen is wider."""
    console.print(_text(text), style=style, soft_wrap=not console.is_terminal)


def _text(text: str, *, keep: str = "") -> Text:
    """Text as it is: nothing in it is markup, an emoji code, or anything else but text."""
    return Text(visible(text, keep=keep))


def cell(text: str) -> Text:
    """A cell of several lines; what names are made of was made visible where they were joined."""
    return _text(text, keep="\n")


def short(count: int) -> str:
    """``591360`` as ``591k``."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)
