"""A table for an issue, a README or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gaam_decoder.reports._base import Format, Table, columns, notes

LEFT = ("attention", "head", "select", "settings")


class Markdown(Format):
    """Pipe tables as GitHub reads them."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        stream.write("\n".join(self._text(table) for table in tables))

    def _text(self, table: Table) -> str:
        header, lines = columns(table)
        rule = [":--" if name in LEFT else "--:" for name in header]
        body = [f"| {' | '.join(_escape(cell) for cell in line)} |" for line in lines]
        head = [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|"]
        below = [f"- {_escape(note)}" for note in notes(table)]
        return "\n".join([f"**{_escape(table.title())}**", "", *head, *body, "", *below]) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
