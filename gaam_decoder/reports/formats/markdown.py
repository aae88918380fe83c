"""A table for an issue, a README or a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gaam_cache.markdown import items, pipes, plain
from gaam_decoder.reports.answer import claims, conclusion
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import SEPARATE, Format, Table
from gaam_decoder.reports.writing import learned_table
from gaam_decoder.reports.writing.section import Section, sections
from gaam_decoder.reports.writing.sheets import Sheet, accuracies, differences, learned

ALIASES = ("md",)


class Markdown(Format):
    """Pipe tables as GitHub reads them.

    Args:
        folded: whether a section shows its first line alone until it is opened, where HTML folds it
            too; for forges, which know ``<details>``.
    """

    def __init__(self, *, folded: bool = False) -> None:
        self._folded = folded

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables, each under its title."""
        stream.write("\n".join(self._text(table) for table in tables))
        if len(tables) > 1:
            stream.write(f"\n{plain(f'{len(tables)} separate tables: {SEPARATE}')}\n")

    def _text(self, table: Table) -> str:
        parts = [f"**{plain(table.title())}**", ""]
        if lead := conclusion(table):
            parts += [plain(lead), ""]
        if table.rows:
            parts += _pipes(accuracies(table))
        if hidden := table.left_out():
            parts += ["", *items([hidden])]
        if final := [final.in_words() for final in table.finals]:
            parts += ["", *items(final)]
        if compared := differences(table):
            parts += ["", f"{plain(compared.caption)}:", "", *_pipes(compared)]
            if said := claims(table):
                parts += ["", *items(said)]
        parts += ["", *items(notes(table))]
        if found := learned(table):
            parts += ["", f"{plain(found.caption)}:", "", *_pipes(found)]
            if below := learned_table.notes(table.rows):
                parts += ["", *items(below)]
        for section in sections(table):
            parts += ["", *_section(section, folded=self._folded and section.folded)]
        return "\n".join(parts) + "\n"


def _section(section: Section, *, folded: bool) -> list[str]:
    body = ["", f"`{section.verbatim}`"] if section.verbatim else []
    for sheet in section.sheets:
        body += ["", f"{plain(sheet.caption)}:", "", *_pipes(sheet)]
    body += ["", *items(section.lines)] if section.lines else []
    if folded and body:
        body = ["", "<details><summary>more of it</summary>", *body, "", "</details>"]
    return [f"**{plain(section.heading)}**: {plain(section.lead)}", *body]


def _pipes(sheet: Sheet) -> list[str]:
    return pipes(sheet.header, sheet.lines, sheet.words)
