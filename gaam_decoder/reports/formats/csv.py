"""Write a report as CSV: one line per entry, for spreadsheets and data frames."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TextIO

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import visible
from gaam_decoder.reports.cells import Cell, Text
from gaam_decoder.reports.columns import Column
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.sections.base import (
    Section,
    requested_sections,
    sections_above_tables,
)
from gaam_decoder.reports.table import Format, Table

TITLE = "title"  # column with the title of the table
# Objects of the JSON whose keys do not stand before the names of their values.
NOT_IN_COLUMN_NAMES = ("cache", "scores", "comparison")
# A formula begins a cell, or stands behind a semicolon that a spreadsheet takes for
# the separator. Some spreadsheets also read the full-width forms.
_FORMULA = re.compile("(^|;)(?=\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20])")
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?")


class Csv(Format):
    """Accuracies are fractions; a value that does not exist is empty."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the lines as CSV, with a header that has the columns of all lines."""
        import pandas

        lines = [
            {_cell(name): _cell(value) for name, value in line.items()}
            for line in self._lines(tables)
        ]
        frame = pandas.DataFrame(lines, dtype=object)
        frame.to_csv(stream, index=False, lineterminator="\n")

    def _lines(self, tables: Sequence[Table]) -> list[dict[str, object]]:
        """The lines of the file: for each, the values by column.

        By default every entry of every table is a line with all its values, under
        their keys in JSON. With ``self.columns`` the line has the requested columns
        alone, under their headers, and the title if there are several tables.

        With ``self.section`` the lines are those of the tables in that section, with
        title and caption; numbers are in the units of the headers. The section may be
        one over all data sets (``self.sections_over_sets``).

        Raises:
            ConfigError: the section has no table.
        """
        if self.section is not None:
            lines = list(
                _lines_of_section(tables, self.section, self.sections_over_sets)
            )
            if not lines:
                raise ConfigError(
                    f"the section '{self.section}' has pictures and no table",
                    expected="a section with a table, or another format",
                    found="--format csv",
                    hint="--format html shows the pictures, --figures FOLDER writes "
                    "them",
                )
        elif self.columns:
            lines = _lines_of_columns(tables, self.columns)
        else:
            lines = [line for table in tables for line in _lines_of_table(table)]
        # a single table needs no title in every line
        if self.columns and len(tables) == 1:
            for line in lines:
                line.pop(TITLE, None)
        return lines


def _lines_of_columns(
    tables: Sequence[Table], columns: Sequence[Column]
) -> list[dict[str, object]]:
    """The requested columns of every shown entry; accuracies are fractions.

    Every line has the same names, in the order of the columns.
    """
    lines: list[dict[str, object]] = [
        {TITLE: table.title()} for table in tables for _ in table.shown_entries
    ]
    for column in columns:
        values_by_line = [
            column.values(entry, table.score.title)
            for table in tables
            for entry in table.shown_entries
        ]
        # an entry that is not compared lacks the names of a comparison
        names = dict.fromkeys(name for values in values_by_line for name in values)
        for line, values in zip(lines, values_by_line, strict=True):
            line.update({name: values.get(name) for name in names})
    return lines


def _lines_of_section(
    tables: Sequence[Table], name: str, sections_over_sets: Sequence[Section]
) -> Iterator[dict[str, object]]:
    """The lines of the sections called ``name``.

    First those of the section over all data sets, if that has the name, then those of
    the section of each table of the report.
    """
    for section in sections_above_tables(sections_over_sets, name):
        yield from _lines_of_sheets(section, title=section.heading)
    # the names over data sets are passed on, so that they are not taken for unknown
    sections_by_table = requested_sections(tables, name, sections_over_sets)
    for table, sections in zip(tables, sections_by_table, strict=True):
        for section in sections:
            yield from _lines_of_sheets(section, title=table.title())


def _lines_of_sheets(section: Section, title: str) -> Iterator[dict[str, object]]:
    """The lines of a section's tables by header, behind title and caption.

    ``title`` is that of the table of decoders, or of the section over all data sets.
    """
    for sheet in section.parts.sheets:
        caption_values: dict[str, object] = {TITLE: title, "caption": sheet.caption}
        columns: dict[str, list[str]] = {}
        for header, *cells in zip(sheet.header, *sheet.lines, strict=True):
            for name, column in _columns_of_cells(header, cells).items():
                used_names = [*caption_values, *columns]
                columns[_unused_name(name, used_names)] = column
        for index in range(len(sheet.lines)):
            values = {name: column[index] for name, column in columns.items()}
            yield {**caption_values, **values}


def _columns_of_cells(header: str, cells: Sequence[str]) -> dict[str, list[str]]:
    """The cells below a header as columns: one number a cell, and empty for ``-``.

    A column without any value is left out.
    """
    parts_of_cells = [
        {_column_name(header, name): text for name, text in cell.parts.items()}
        if isinstance(cell, Cell)
        else {header: cell}
        for cell in cells
    ]
    names = dict.fromkeys(name for parts in parts_of_cells for name in parts)
    columns = {
        name: [_value(parts.get(name, "")) for parts in parts_of_cells]
        for name in names
    }
    return {
        name: column
        for name, column in columns.items()
        if any(value != "" for value in column)
    }


def _unused_name(name: str, used: Collection[str]) -> str:
    """The name of a column; with a number where a column has this name already.

    The columns of a section may be named by a person, as data sets and encoders are.
    """
    if name not in used:
        return name
    number = 2
    while f"{name} {number}" in used:
        number += 1
    return f"{name} {number}"


def _column_name(header: str, name: str) -> str:
    """The column of a part of a cell: the part's name may follow that of the header."""
    follows_header = name == "" or name.startswith(" ")
    return header.partition(" (")[0] + name if follows_header else name


def _value(text: str) -> str:
    """A text as a value: ``-`` is empty, and a number has no plus and no commas."""
    if isinstance(text, Text):
        return text
    if text == "-":
        return ""
    if not _NUMBER.fullmatch(text):
        return text
    return text.replace(",", "").removeprefix("+")


def _lines_of_table(table: Table) -> Iterator[dict[str, object]]:
    """All values of every shown entry, and of every final model."""
    content = table.to_dict()
    shared = _shared_values(table, content)
    trivial_score = "majority_accuracy" if table.task.has_classes else "baseline_score"
    tested = {name: content[name] for name in ("tested_on", "test_rows", trivial_score)}
    for entry, values in zip(table.shown_entries, content["entries"], strict=True):
        evaluated = {"settings": entry.settings, "evaluated": True}
        yield shared | flat(values) | tested | evaluated
    for final in content["final_models"]:
        yield shared | flat(final)


def _shared_values(table: Table, content: Mapping[str, Any]) -> dict[str, object]:
    """Values that stand in every line of a table.

    ``content`` has the JSON values of the table.
    """
    cache = content["cache"]
    shared = {name: cache[name] for name in ("fingerprint", "encoder", "dataset")}
    if table.cache_difference:
        shared["cache_differs_by"] = table.cache_difference
    left_out = table.selection.left_out if table.selection else {}
    counts = ", ".join(f"{count:,} by {name}" for name, count in left_out.items())
    shared["left_out"] = counts or None
    shared["compared_by"] = table.score_name
    shared["conclusion"] = conclusion(table)
    groups = content["groups"]
    if groups is not None:
        shared["groups"] = groups["number"]
        shared["grouped_by"] = ", ".join(groups["columns"])
    return shared


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn JSON values into columns: ``accuracy.mean`` becomes ``accuracy_mean``.

    An interval becomes ``low`` and ``high``, a list of seeds their number. Other lists
    and missing values are left out.

    Args:
        values: JSON values by key.
        prefix: stands before the key in the name of a column.
    """
    columns: dict[str, object] = {}
    for key, value in values.items():
        # names of columns have no hyphen; it comes with the names of scores
        name = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, Mapping):
            inner_prefix = ""
            if key not in NOT_IN_COLUMN_NAMES:
                short_key = key.replace("on_these_test_rows", "these_rows")
                inner_prefix = f"{prefix}{short_key}_"
            columns |= flat(value, inner_prefix)
        elif "ci95" in key and isinstance(value, (list, tuple)):
            columns[f"{name}_low"] = value[0]
            columns[f"{name}_high"] = value[1]
        elif isinstance(value, (list, tuple)):
            if key.endswith("seeds"):
                columns[name] = len(value)
        elif value is not None:
            columns[name] = value
    return columns


def _cell(value: object) -> object:
    """Keep numbers, and mark a text that begins like a formula as text."""
    if not isinstance(value, str):
        return value
    # a number and a lone dash compute nothing
    if value == "-" or _NUMBER.fullmatch(value):
        return value
    # Some spreadsheets drop a first tab or return, and then read a formula. This comes
    # first: ``visible`` replaces both characters.
    marked = f"'{value}" if value.startswith(("\t", "\r")) else value
    # the quote stands before the formula, and behind a semicolon that precedes it
    return _FORMULA.sub(r"\1'", visible(marked))
