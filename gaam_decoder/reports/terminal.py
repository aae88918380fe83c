"""A table for the terminal that stays whole in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from gaam_decoder.reports import _learned
from gaam_decoder.reports._base import Format, Row, Table, columns, notes

PLAIN_WIDTH = 120
"""Width where the output is no terminal."""
HEADERS = {
    "attention": "decoder",
    "accuracy %": "acc %",
    "sd": "sd",
    "95% CI": "95% CI",
    "macro-F1 %": "F1 %",
    "parameters (attn / total)": "parameters",
    "s/seed": "s/seed",
    "seeds": "seeds",
}
"""Columns that are shown, and headers short enough for them."""


class Terminal(Format):
    """Tables drawn by rich; head, options and settings stand below the name of the mechanism."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        width = None if stream.isatty() else PLAIN_WIDTH
        console = Console(file=stream, width=width, highlight=False)
        for number, table in enumerate(tables):
            if number:
                console.print()
            self._write(table, console)
        if len(tables) > 1:
            console.print(f"{len(tables)} caches: their numbers are not to be compared")

    def _write(self, table: Table, console: Console) -> None:
        header, lines = columns(table)
        rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
        for name, short in HEADERS.items():
            first = name == "attention"
            rich_table.add_column(short, justify="left" if first else "right", no_wrap=True)
        heads = {row.head for row in table.rows}
        for row, line in zip(table.rows, lines, strict=True):
            cells = dict(zip(header, line, strict=True))
            cells["attention"] = _label(row, table, cells.get("settings", ""))
            cells["95% CI"] = cells["95% CI"].replace(" to ", "-")
            counts = (row.parameters["attention"], row.parameters["total"])
            cells["parameters (attn / total)"] = "/".join(map(_short, counts))
            rich_table.add_row(*(escape(cells[name]) for name in HEADERS))
        console.print(escape(table.title()), style="bold", soft_wrap=True)
        console.print(rich_table)
        if len(heads) == 1:
            console.print(f"head: {escape(table.rows[0].head)}", soft_wrap=True)
        console.print("parameters: attention/total", soft_wrap=True)
        for note in notes(table):
            console.print(escape(note), soft_wrap=True)
        _write_learned(table, console)


def _label(row: Row, table: Table, settings: str) -> str:
    """Name of a decoder, and below it whatever tells it from the others of the table."""
    name, _, options = row.attention.partition(":")
    below = [*options.split(","), *settings.split(", ")]
    below += [f"select={row.select}"] if len({r.select for r in table.rows}) > 1 else []
    decoder = f"{name} + {row.head}" if len({r.head for r in table.rows}) > 1 else name
    return "\n  ".join([decoder, *filter(None, below)])


def _write_learned(table: Table, console: Console) -> None:
    if not any(row.learned for row in table.rows):
        return
    rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for name in ("decoder", *_learned.HEADER[:-1], "sd of\nmedians"):
        left = name in ("decoder", "parameter")
        rich_table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row, settings in zip(table.rows, table.settings(), strict=True):
        if lines := _learned.cells(row):
            stacked = ["\n".join(column) for column in zip(*lines, strict=True)]
            rich_table.add_row(*map(escape, [_label(row, table, settings), *stacked]))
    console.print()
    console.print(_learned.TITLE, style="bold", soft_wrap=True)
    console.print(rich_table)
    console.print("sd of medians: over seeds, of each seed's median", soft_wrap=True)
    for note in _learned.notes(table.rows):
        console.print(escape(note), soft_wrap=True)


def _short(count: int) -> str:
    """``591360`` as ``591k``."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)
