"""Write a report for a terminal: one screen of 80 columns or more."""

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gaam_cache.common.messages import brief, counted, visible
from gaam_decoder.reports.cells import marks
from gaam_decoder.reports.columns import (
    Column,
    ScreenColumn,
    Sheet,
    entries_sheet,
    score_caption,
    screen_columns,
)
from gaam_decoder.reports.encoders import advice_on_tables
from gaam_decoder.reports.names import AT_EDGE
from gaam_decoder.reports.notes import legend, notes_on_runs, warnings
from gaam_decoder.reports.sections.base import (
    Section,
    answer_sentences,
    requested_sections,
    sections_above_tables,
    signature,
)
from gaam_decoder.reports.table import Format, Table

# Width for an output that is no terminal, unless COLUMNS sets it.
PLAIN_WIDTH = 120
# On a narrower screen lines wrap: a narrower table would cut numbers.
LEAST_WIDTH = 80
UNLIMITED_WIDTH = 10_000
MOST_NOTES = 6
# Characters that the column of decoders has at least; rich folds longer names.
LONGEST_NAME = 20
ALIASES = ("text", "txt", "table", "console")


class Terminal(Format):
    """The conclusion, one table and at most six notes; or one section."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the tables; width and colour follow the stream."""
        console = _console(stream)
        # A section has its natural width: the screen wraps what does not fit.
        if self.section:
            console.width = UNLIMITED_WIDTH
        else:
            console.width = max(console.width, LEAST_WIDTH)

        over_sets = sections_above_tables(self.sections_over_sets, self.section)
        if self.section:
            _write_requested_over_sets(over_sets, console)
        else:
            _write_answer_over_sets(over_sets, console)
        sections_by_table = requested_sections(
            tables, self.section, self.sections_over_sets
        )
        shown = [
            (table, sections)
            for table, sections in zip(tables, sections_by_table, strict=True)
            if sections or not self.section
        ]
        for number, (table, sections) in enumerate(shown):
            if number or over_sets:
                console.print()
            _print_line(console, table.title(), style="bold")
            if self.section:
                _write_sections(table, sections, console)
            else:
                _write_table(table, sections, console, self.columns)
        if len(shown) > 1:
            advice = advice_on_tables(tables, self.sections_over_sets)
            _print_line(console, f"{len(shown)} separate tables: {advice}")
            # of many tables, the answer above them has left the screen
            for section in over_sets:
                _print_answers(section, console)


def _console(stream: TextIO) -> Console:
    """A console of rich that writes to the stream, with a width that is known."""
    is_width_known = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    # In a notebook rich would show what it draws, leave the text empty, and colour it.
    return Console(
        file=stream,
        width=None if is_width_known else PLAIN_WIDTH,
        highlight=False,
        force_jupyter=False,
        force_terminal=stream.isatty(),
    )


def _write_requested_over_sets(over_sets: Sequence[Section], console: Console) -> None:
    """Write everything of the sections over all tables that a person asked for."""
    for section in over_sets:
        _print_line(console, section.heading, style="bold")
        _print_answers(section, console)
        for sheet in section.parts.sheets:
            _print_line(console, sheet.caption)
            console.print(_rich_table(sheet), "")
        for line in section.lines:
            _print_line(console, f"- {line}")


def _write_answer_over_sets(over_sets: Sequence[Section], console: Console) -> None:
    """Write the sections over all tables that have an answer, and name all of them.

    They are cut to what a screen has room for.
    """
    for section in over_sets:
        if not section.answers:
            continue
        _print_line(console, section.heading, style="bold")
        _print_answers(section, console)
        for sheet in section.parts.sheets:
            _print_line(console, sheet.caption)
            console.print(_rich_table(_narrowed(sheet, console.width)), "")
        for line in section.lines[:MOST_NOTES]:
            _print_line(console, f"- {line}")
    names = [section.name for section in over_sets]
    if names:
        _print_line(console, f"more by --section NAME: {', '.join(names)}")


def _print_answers(section: Section, console: Console) -> None:
    """Print the answers of a section, each as a sentence."""
    for answer in section.answers:
        _print_line(console, f"{answer}.")


def _narrowed(sheet: Sheet, width: int) -> Sheet:
    """A table that fits the width of a screen, without some of its columns.

    The widest column goes first. The first column and the key columns stay.
    """
    # each column as its header and cells, with the width of the widest
    columns = [list(cells) for cells in zip(sheet.header, *sheet.lines, strict=True)]
    widths = [max(map(_width, cells)) + 2 for cells in columns]
    # rich folds the first column
    widths[0] = min(widths[0], LONGEST_NAME + 2)
    kept_indices = list(range(len(columns)))
    dispensable = [
        index
        for index in kept_indices[1:]
        if sheet.header[index] not in sheet.key_headers
    ]
    dispensable.sort(key=lambda index: widths[index])
    while dispensable and sum(widths[index] for index in kept_indices) > width:
        kept_indices.remove(dispensable.pop())
    header, *lines = zip(*(columns[index] for index in kept_indices), strict=True)
    return Sheet(sheet.caption, list(header), [list(line) for line in lines])


def _write_sections(
    table: Table, sections: Sequence[Section], console: Console
) -> None:
    """Write the requested sections of a table, behind its warnings."""
    for warning in warnings(table):
        _print_line(console, f"- {warning}")
    for section in sections:
        _write_section(section, console)


def _write_table(
    table: Table, sections: list[Section], console: Console, columns: Sequence[Column]
) -> None:
    """Write a table with its conclusion, its notes and the names of its sections.

    Sections that answer an option of the report, such as ``--pairs``, are written too.
    """
    for answer in answer_sentences(table, sections):
        _print_line(console, answer + ".")
    if table.entries:
        _write_entries(table, console, columns)

    for line in table.further_lines():
        _print_line(console, line)
    notes = notes_on_runs(table)
    for note in notes[:MOST_NOTES]:
        _print_line(console, f"- {note}")

    for section in sections:
        if section.answers:
            _write_section(section, console)
    if len(notes) > MOST_NOTES:
        num_more = len(notes) - MOST_NOTES
        _print_line(
            console,
            f"{counted(num_more, 'more note')} in --format html, markdown and json",
        )
    if sections:
        names = ", ".join(section.name for section in sections)
        _print_line(console, f"more by --section NAME: {names}")
    _print_line(console, f"signature: {signature(table)}")


def _write_entries(table: Table, console: Console, columns: Sequence[Column]) -> None:
    """Write the table of decoders, and what its columns are."""
    if columns:
        # A narrow screen must not drop any of the requested columns.
        width = console.width
        console.width = UNLIMITED_WIDTH
        console.print(_rich_table(entries_sheet(table, columns)), "")
        console.width = width
    else:
        console.print(_entries_table(table, console), "")

    explanation = score_caption(table)
    # heads that the names of the entries do not say; a dictionary keeps their order
    heads = dict.fromkeys(
        entry.head
        for entry in table.entries
        if f"+ {brief(entry.head, 60)}" not in entry.name
    )
    for head in heads:
        explanation += f", head {brief(head)}"
    if table.compared_entries:
        explanation += f", differences to {brief(str(table.baseline))}"
    # the first line of the legend goes on where the explanation ends
    legend_lines = legend(table)
    _print_line(console, "; ".join([explanation, *legend_lines[:1]]))
    for line in legend_lines[1:]:
        _print_line(console, line)


def _write_section(section: Section, console: Console) -> None:
    """Write the heading, the tables and the notes of a section."""
    heading = section.heading
    if section.lead:
        heading += f": {section.lead}"
    _print_line(console, heading)
    for sheet in section.parts.sheets:
        _print_line(console, sheet.caption, style="bold")
        console.print(_rich_table(sheet), "")
    for line in section.lines:
        _print_line(console, f"- {line}")
    if section.parts.pictures:
        _print_line(console, "its picture is in --format html and --figures")


def _rich_table(sheet: Sheet) -> RichTable:
    """Turn a table into one of rich, which folds the first column if need be."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    drawn.add_column(_literal_text(sheet.header[0]), overflow="fold")
    for name in sheet.header[1:]:
        is_text = name in sheet.text_headers
        drawn.add_column(
            _literal_text(name), justify="left" if is_text else "right", no_wrap=True
        )
    for line in sheet.lines:
        drawn.add_row(*map(_literal_text, line))
    return drawn


def _entries_table(table: Table, console: Console) -> RichTable:
    """The table of decoders, with as many columns as the screen has room for."""
    names = []
    for entry in table.shown_entries:
        # without spaces inside, a setting and its mark stay on one line of the cell
        settings = entry.settings.replace(AT_EDGE, "(edge)").replace(", ", " ")
        name = f"{entry.name} {settings}".rstrip() + marks(entry)
        # without a space, the dagger never wraps to a line of its own
        names.append(name.replace(" †", "†"))

    texts_by_column = _texts_by_column(table)
    first_width = min(LONGEST_NAME, max(map(_width, names))) + 2
    shown_columns = _columns_with_room(texts_by_column, console.width - first_width)
    texts_of_columns = [texts_by_column[column] for column in shown_columns]
    header, *lines = zip(["decoder", *names], *texts_of_columns, strict=True)
    return _rich_table(Sheet("", list(header), [list(line) for line in lines]))


def _texts_by_column(table: Table) -> dict[ScreenColumn, list[str]]:
    """Column of the screen -> its header and cells.

    Columns that are empty in all entries are left out. The header of the score is
    short, and may have two lines.
    """
    score = table.score.column.replace("accuracy", "acc").replace(" ", "\n", 1)
    texts_by_column = {}
    for column, screen_column in screen_columns():
        cells = [column.text(entry) for entry in table.shown_entries]
        is_empty = all(cell == "" for cell in cells)
        if not is_empty:
            header = screen_column.header.format(score=score)
            texts_by_column[screen_column] = [header, *cells]
    return texts_by_column


def _columns_with_room(
    texts_by_column: Mapping[ScreenColumn, Sequence[str]], width: int
) -> list[ScreenColumn]:
    """The columns for which a screen has room, in their order.

    Args:
        texts_by_column: column -> its header and cells.
        width: characters of the screen beside the first column.
    """
    width_by_column = {
        column: max(map(_width, texts)) + 2 for column, texts in texts_by_column.items()
    }
    dispensable = [
        column for column in texts_by_column if column.drop_order is not None
    ]
    # the lowest number goes first
    dispensable.sort(key=lambda column: column.drop_order or 0)
    for column in dispensable:
        if sum(width_by_column.values()) > width:
            del width_by_column[column]
    return list(width_by_column)


def _width(text: str) -> int:
    """Number of characters of the widest line of a text, as a terminal counts them."""
    return max(map(cell_len, text.split("\n")))


def _print_line(console: Console, text: str, *, style: str | None = None) -> None:
    """Write a line that wraps at words where the screen ends."""
    console.print(Text(visible(text)), style=style, soft_wrap=not console.is_terminal)


def _literal_text(text: str) -> Text:
    """A text of rich that is shown as it is, without markup and emoji codes."""
    return Text(visible(text, keep="\n"))
