"""CSV that a spreadsheet opens without obeying it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from gaam_cache.messages import visible
from gaam_decoder.reports.table.base import Table

# at the beginning of a cell, also where a spreadsheet takes semicolons for the separator, and in
# the full-width forms that some take as well
_FORMULA = re.compile("(^|;)(?=\\s*[=+\\-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                      "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}])")  # fmt: skip
_BEFORE_TEXT = re.compile(r"^(?=[\t\r])")


def write_lines(stream: TextIO, fields: Sequence[str], lines: Iterable[dict[str, Any]]) -> None:
    """Write a header and lines; numbers stay numbers, and text that begins like a formula is text.

    Args:
        stream: takes the lines.
        fields: columns.
        lines: column -> value; what is not there, or None, is empty.
    """
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_cell, fields))
    writer.writerows([_cell(line.get(name)) for name in fields] for line in lines)


def left_out(table: Table) -> str | None:
    """How many runs were left out of a report, and by what; None where none were."""
    return (table.selection and table.selection.left_out_in_words()) or None


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", visible(_BEFORE_TEXT.sub("'", value)))
