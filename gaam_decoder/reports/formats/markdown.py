"""A table for an issue, a README or a notebook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from gaam_cache.messages.foreign_text import visible
from gaam_decoder.reports import _finals, _learned
from gaam_decoder.reports._base import SEPARATE, Format, Table
from gaam_decoder.reports._claims import claims, conclusion
from gaam_decoder.reports._notes import notes
from gaam_decoder.reports._sheets import LEFT, Sheet, accuracies, differences, learned

# what programs make links, mentions and references of, also after a backslash: as an escape
_LINKED = re.compile(r"@|:(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|#(?=\d)", re.IGNORECASE)
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>|~&$]")
_FIRST = re.compile(r"^(?:[#+=-]|\d+[.)])")
"""At the beginning of a line: headings, lists, rules."""

ALIASES = ("md",)


class Markdown(Format):
    """Pipe tables as GitHub reads them."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        stream.write("\n".join(self._text(table) for table in tables))
        if len(tables) > 1:
            stream.write(f"\n{_plain(f'{len(tables)} separate tables: {SEPARATE}')}\n")

    def _text(self, table: Table) -> str:
        parts = [f"**{_plain(table.title())}**", ""]
        if lead := conclusion(table):
            parts += [_plain(lead[0].upper() + lead[1:]), ""]
        if table.rows:
            parts += _pipes(accuracies(table))
        if final := _finals.lines(table):
            parts += ["", *_items(final)]
        if compared := differences(table):
            parts += ["", f"{_plain(compared.caption)}:", "", *_pipes(compared)]
            if said := claims(table):
                parts += ["", *_items(said)]
        parts += ["", *_items(notes(table))]
        if found := learned(table):
            parts += ["", f"{_plain(found.caption)}:", "", *_pipes(found)]
            if below := _learned.notes(table.rows):
                parts += ["", *_items(below)]
        return "\n".join(parts) + "\n"


def _pipes(sheet: Sheet) -> list[str]:
    rule = [":--" if name in LEFT else "--:" for name in sheet.header]
    body = [f"| {' | '.join(map(_escape, line))} |" for line in sheet.lines]
    return [f"| {' | '.join(map(_escape, sheet.header))} |", f"|{'|'.join(rule)}|", *body]


def _items(lines: Sequence[str]) -> list[str]:
    return [f"- {_plain(line)}" for line in lines]


def _plain(text: str) -> str:
    """A line of nothing but text."""
    return _FIRST.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", _escape(text))


def _escape(text: str) -> str:
    """Text in which nothing is Markdown, HTML or a link, on one line."""
    words = " ".join(visible(text).split())
    words = _LINKED.sub(lambda found: f"\\x{ord(found[0]):02x}", words)
    return _ACTIVE.sub(lambda found: "\\" + found[0], words)
