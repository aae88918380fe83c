"""A table for an issue, a README or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gaam_decoder.reports import _learned
from gaam_decoder.reports._base import SEPARATE, Format, Table
from gaam_decoder.reports._notes import notes
from gaam_decoder.reports._sheets import LEFT, Sheet, accuracies, differences, learned


class Markdown(Format):
    """Pipe tables as GitHub reads them."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        stream.write("\n".join(self._text(table) for table in tables))
        if len(tables) > 1:
            stream.write(f"\n{len(tables)} separate tables: {SEPARATE}\n")

    def _text(self, table: Table) -> str:
        parts = [f"**{_escape(table.title())}**", "", *_pipes(accuracies(table))]
        if compared := differences(table):
            parts += ["", f"{_escape(compared.caption)}:", "", *_pipes(compared)]
        parts += ["", *(f"- {_escape(note)}" for note in notes(table))]
        if found := learned(table):
            below = [f"- {_escape(note)}" for note in _learned.notes(table.rows)]
            parts += ["", f"{found.caption}:", "", *_pipes(found), *([""] if below else []), *below]
        return "\n".join(parts) + "\n"


def _pipes(sheet: Sheet) -> list[str]:
    rule = [":--" if name in LEFT else "--:" for name in sheet.header]
    body = [f"| {' | '.join(_escape(cell) for cell in line)} |" for line in sheet.lines]
    return [f"| {' | '.join(sheet.header)} |", f"|{'|'.join(rule)}|", *body]


def _escape(text: str) -> str:
    for character in "\\|*_<`":
        text = text.replace(character, "\\" + character)
    return text
