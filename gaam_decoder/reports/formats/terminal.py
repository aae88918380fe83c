"""A table for the terminal that stays whole in 80 columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from gaam_cache.messages.foreign_text import brief
from gaam_decoder.reports.notes.claims import claims, conclusion
from gaam_decoder.reports.notes.condensed import WHOLE, condensed, condensed_notes
from gaam_decoder.reports.notes.notes import notes
from gaam_decoder.reports.table import final_models, layout
from gaam_decoder.reports.table.base import SEPARATE, Format, Table
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing import learned_table, sheets
from gaam_decoder.reports.writing.drawn import cell, empty, fitting, of_sheet, say, short
from gaam_decoder.reports.writing.section import Section, sections
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.reports.writing.unit import DEFAULT

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
DIFFERENCE = {
    "difference": "diff",
    "95% CI + rows": "95% CI\n+ rows",
    "95% CI on these rows": "95% CI\nthese rows",
    "p Holm": "p\nHolm",
    "verdict": "verdict",
    "p on these rows": "p these\nrows",
    "pairs": "pairs",
}

OF_LARGE = ("accuracy %", "sd", "95% CI + rows", "macro-F1 %", "seeds", "difference", "p Holm",
            "verdict", "pairs", "p training")  # fmt: skip
"""Columns of a large report, whose names are long."""
UNSHOWN = ("sd and the first 95% interval", "on these rows:", "MDD:")
"""How notes begin that explain other columns."""
ALIASES = ("text", "txt", "table", "console")


class Terminal(Format):
    """Tables drawn by rich; head, options and settings stand below the name of the mechanism."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        console = Console(file=stream, width=None if known else PLAIN_WIDTH, highlight=False)
        console.width = max(console.width, LEAST_WIDTH)
        if layout.large(tables):
            _write_large(layout.summarised(tables), console)
            return
        for number, table in enumerate(tables):
            if number:
                console.print()
            self._write(table, console)
        if len(tables) > 1:
            say(console, f"{len(tables)} separate tables: {SEPARATE}")

    def _write(self, table: Table, console: Console) -> None:
        say(console, table.title(), style="bold")
        if lead := conclusion(table):
            say(console, lead)
        if table.rows:
            console.print(fitting(*_accuracies(table), console), "")
        if hidden := layout.left_out(table):
            say(console, hidden)
        for line in final_models.lines(table):
            say(console, line)
        if table.covered:  # what there is to say stands below the table over all folds
            return
        compared = sheets.differences(table)
        if compared:
            say(console, compared.caption, style="bold")
            console.print(fitting(*_differences(table, compared), console), "")
            for claim in claims(table):
                say(console, f"- {claim}")
        if heads := {row.head for row in table.rows if not table.shows_head(row)}:
            say(console, f"head: {brief(heads.pop())}")
        for note in notes(table):
            say(console, note)
        _write_learned(table, console)
        for section in sections(table):
            _write_section(section, console)


def _accuracies(table: Table, *, folded: bool = True) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of cells, the decoder not among the headers."""
    names = _names(table, folded=folded)
    sheet = sheets.accuracies(table)
    columns = _columns(table)
    columns = columns if folded else {k: v for k, v in columns.items() if k in OF_LARGE}
    shown = columns | ({"published %": "publ.\n%"} if "published %" in sheet.header else {})
    if "published %" in shown:
        shown.pop("s/seed", None)  # what others found is of more interest than the time
    rows = []
    for place, cells in zip(table.places, sheet.dicts(), strict=True):
        row = table.rows[place]
        counts = (row.parameters["attention"], row.parameters["total"])
        cells["parameters (attn / total)"] = "/".join(map(short, counts))
        if row.failed:
            cells["seeds"] = f"{len(row.scores.seeds)}/{len(row.seeds)}"
        if "published %" in cells:
            cells["published %"] = cells["published %"].partition(" ")[0]
        rows.append([names[place], *(cells[name] for name in shown)])
    return list(shown.values()), rows


def _columns(table: Table) -> dict[str, str]:
    """Columns of the accuracies, or of the score that stands in their place."""
    if table.score == DEFAULT:
        return ACCURACY
    column = table.unit.column
    instead = {"accuracy %": (column, column.replace(" ", "\n", 1))}
    if table.score == "macro-f1":
        instead |= {"macro-F1 %": ("accuracy %", "acc %")}
    return dict(instead.get(name, (name, short)) for name, short in ACCURACY.items())


def _differences(
    table: Table, sheet: Sheet, *, folded: bool = True
) -> tuple[list[str], list[list[str]]]:
    names = _names(table, folded=folded)
    labels = [names[place] for place in table.places if table.comparisons[place] is not None]
    columns = DIFFERENCE if folded else {k: v for k, v in DIFFERENCE.items() if k in OF_LARGE}
    shown = columns | ({"p training": "p\ntraining"} if "p training" in sheet.header else {})
    rows = []
    for label, cells in zip(labels, sheet.dicts(), strict=True):
        rows.append([label, *(cells[name] for name in shown)])
    return list(shown.values()), rows


def _names(table: Table, *, folded: bool) -> list[str]:
    """Names of all rows, over several lines or in one."""
    if not folded:
        return table.labels()
    return [
        _label(row, table, settings)
        for row, settings in zip(table.rows, table.settings(), strict=True)
    ]


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
    rich_table = empty([*learned_table.HEADER[:-1], "sd of\nmedians"])
    rich_table.columns[1].justify = "left"
    names = _names(table, folded=True)
    for place in table.places:
        if lines := learned_table.cells(table.rows[place]):
            stacked = ["\n".join(column) for column in zip(*lines, strict=True)]
            rich_table.add_row(*map(cell, [names[place], *stacked]))
    console.print()
    say(console, learned_table.TITLE, style="bold")
    console.print(rich_table, "")
    say(console, "sd of medians: over seeds, of each seed's median")
    for note in learned_table.notes(table.rows):
        say(console, note)


def _write_large(tables: Sequence[Table], console: Console) -> None:
    """What fits a few screens of a report of many rows; nothing that warns is left out."""
    said: set[str] = set()
    whole = [table for table in tables if not table.covered]
    for table in whole:
        say(console, table.title(), style="bold")
        if lead := conclusion(table):
            say(console, lead)
        if table.rows:
            console.print(fitting(*_accuracies(table, folded=False), console), "")
        if hidden := layout.left_out(table):
            say(console, hidden)
        for line in condensed(final_models.lines(table), [final.label for final in table.finals]):
            say(console, line)
        if compared := sheets.differences(table):
            say(console, compared.caption, style="bold")
            console.print(fitting(*_differences(table, compared, folded=False), console), "")
        if heads := {row.head for row in table.rows if not table.shows_head(row)}:
            say(console, f"head: {brief(heads.pop())}")
        for note in condensed_notes(table, said):
            if not note.startswith(UNSHOWN):
                say(console, note)
        for section in sections(table):
            whole_line = f"{section.heading}: {section.lead}"
            if not section.folded or section.verbatim or whole_line not in said:
                _write_section(section, console)
            said.add(whole_line)
    if parts := [table.where for table in tables if table.covered]:
        say(
            console,
            f"{len(parts)} tables of parts of these are not shown ({brief('; '.join(parts))})",
        )
    if any(row.learned for table in whole for row in table.rows):
        say(console, "ranges of the learned parameters are not shown")
    if len(whole) > 1:
        say(console, f"{len(whole)} separate tables: {SEPARATE}")
    say(console, f"this is short: {WHOLE}, --format csv all rows, --top N the best of them here")


def _write_section(section: Section, console: Console) -> None:
    """A folded one is its first line; --format html or markdown shows all of it."""
    if section.verbatim:
        say(console, f"{section.heading.lower()}: {section.verbatim}")
        return
    say(console, f"{section.heading}: {section.lead}")
    if section.folded:
        return
    for sheet in section.sheets:
        say(console, sheet.caption, style="bold")
        console.print(of_sheet(sheet), "")
    for line in section.lines:
        say(console, f"- {line}")
