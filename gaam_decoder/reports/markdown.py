"""A table for an issue, a README or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gaam_decoder.reports import _learned
from gaam_decoder.reports._base import Format, Table, columns, notes

LEFT = ("attention", "head", "select", "settings", "parameter")


class Markdown(Format):
    """Pipe tables as GitHub reads them."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        stream.write("\n".join(self._text(table) for table in tables))

    def _text(self, table: Table) -> str:
        below = [f"- {_escape(note)}" for note in notes(table)]
        parts = [f"**{_escape(table.title())}**", "", *_pipes(*columns(table)), "", *below]
        return "\n".join([*parts, *_learned_part(table)]) + "\n"


def _pipes(header: list[str], lines: list[list[str]]) -> list[str]:
    rule = [":--" if name in LEFT else "--:" for name in header]
    body = [f"| {' | '.join(_escape(cell) for cell in line)} |" for line in lines]
    return [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|", *body]


def _learned_part(table: Table) -> list[str]:
    lines = [
        [row.attention, row.head, row.select, *cells, settings]
        for row, settings in zip(table.rows, table.settings(), strict=True)
        for cells in _learned.cells(row)
    ]
    if not lines:
        return []
    header = ["attention", "head", "select", *_learned.HEADER, "settings"]
    if not any(table.settings()):
        header.pop()
        lines = [line[:-1] for line in lines]
    below = [f"- {_escape(note)}" for note in _learned.notes(table.rows)]
    return ["", f"{_learned.TITLE}:", "", *_pipes(header, lines), *([""] if below else []), *below]


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
