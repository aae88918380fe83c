"""A table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from gaam_decoder.reports._base import Format, Table, columns, notes

PLAIN_WIDTH = 160
"""Width where the output is no terminal: wide enough that nothing is broken."""


class Terminal(Format):
    """Tables drawn by rich; columns that are the same in all rows move below the table."""

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
        constant = {
            name: lines[0][index]
            for index, name in enumerate(header)
            if name in ("head", "select", "seeds") and len({line[index] for line in lines}) == 1
        }
        shown = [index for index, name in enumerate(header) if name not in constant]
        rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for index in shown:
            left = header[index] in ("attention", "head", "select", "settings")
            rich_table.add_column(header[index], justify="left" if left else "right")
        for line in lines:
            rich_table.add_row(*(escape(line[index]) for index in shown))
        console.print(escape(table.title()), style="bold", soft_wrap=True)
        console.print(rich_table)
        for name, value in constant.items():
            if name == "select":
                continue  # the notes say it in words
            console.print(escape(f"{name}: {value}"), soft_wrap=True)
        for note in notes(table):
            console.print(escape(note), soft_wrap=True)
