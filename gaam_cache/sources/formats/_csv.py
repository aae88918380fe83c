"""The rows of a CSV file, one after another; where one cannot be read is said by line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources.formats._lines import MAX_LINE_CHARS, numbered_lines

MAX_FIELD_CHARS = MAX_LINE_CHARS
"""A longer field means an unclosed quote, not a text."""
QUOTING = 'quote a field that holds {} or line breaks, and double the quotes inside it: ""'


class CsvFile(NamedTuple):
    """A CSV file, and how it is read."""

    path: Path
    delimiter: str
    encoding: str | None

    @property
    def delimiters(self) -> str:
        return {",": "commas", "\t": "tabs"}.get(self.delimiter, excerpt(self.delimiter))

    @property
    def quoting(self) -> str:
        return QUOTING.format(self.delimiters)

    def lines(self) -> Iterator[tuple[int, str]]:
        return numbered_lines(self.path, newline="", encoding=self.encoding)


def read_header(file: CsvFile, rows: Iterator[tuple[str, list[str]]]) -> list[str]:
    """Names of all columns as they stand in the first row; white space around them does not count.

    Raises:
        DataError: no row, or a name twice.
    """
    where, header = next(rows, ("line 1", []))
    names = [name.strip() for name in header]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not header:
        raise DataError(
            "the first line is no header",
            expected="distinct column names",
            found=f"{excerpt(repeated[0])} twice" if repeated else "an empty file",
            where=f"{file.path}, {where}",
        )
    return header


def sized(
    file: CsvFile, names: list[str], rows: Iterator[tuple[str, list[str]]]
) -> Iterator[tuple[str, list[str] | DataError]]:
    """The rows, or why one is none: it has more or fewer fields than there are columns."""
    for where, row in rows:
        if len(row) == len(names):
            yield where, row
        else:
            yield (
                where,
                DataError(
                    "a row has the wrong number of fields",
                    expected=f"{len(names)} ({', '.join(names)})",
                    found=f"{len(row)} ({', '.join(map(excerpt, row[:8]))})",
                    hint=file.quoting,
                ),
            )


def read_rows(
    file: CsvFile,
    skipped: Callable[[int], None] = lambda lines: None,  # noqa: ARG005
) -> Iterator[tuple[str, list[str]]]:
    """All rows, and the line or lines where each stands.

    A blank line is no row, but that of a single column: there it is a row of an empty field, as it
    is where no header says that it is CSV.

    Args:
        file: to be read.
        skipped: told in front of a row how many blank lines before it are none.
    """
    # a setting of the whole process, the only way to it; never lower than another has set it
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    lines = (line for _, line in file.lines())
    reader = csv.reader(lines, strict=True, delimiter=file.delimiter)
    start, width, blank = 1, 0, 0
    try:
        for row in reader:
            last = reader.line_num
            if not row and width == 1:
                row = [""]
            if not row:
                blank += 1
            else:
                width = width or len(row)
                if blank:
                    skipped(blank)
                    blank = 0
                yield (f"line {start}" if start == last else f"lines {start} to {last}"), row
            start = last + 1
    except csv.Error as error:
        raise _unreadable(file, start, reader.line_num, error) from error


def _unreadable(file: CsvFile, start: int, stopped: int, error: csv.Error) -> DataError:
    opened, behind = _faulty_field(file, start, stopped)
    if behind:
        message = "a quoted field goes on after its closing quote"
        found = f"{excerpt(behind)} after a quote in line {stopped}"
    elif "field larger" in str(error):
        message, found = "a field is too long", f"more than {MAX_FIELD_CHARS:,} characters"
    else:
        message, found = "a quoted field is never closed", f"the end of the file, line {stopped}"
    return DataError(
        message,
        expected='a closing quote (") and then '
        f"{'a comma' if file.delimiter == ',' else excerpt(file.delimiter)} or the end of the line",
        found=found,
        where=f"{file.path}, line {opened}, where the field begins",
        hint=file.quoting,
    )


def _faulty_field(file: CsvFile, start: int, stopped: int) -> tuple[int, str]:
    """Where the last quoted field begins of a record that the csv module cannot read.

    The module knows only where it gave up, which for an unclosed quote is the end of the file.

    Args:
        file: the file.
        start: first line of the record.
        stopped: line where the module gave up.

    Returns:
        The line of the opening quote, and what follows the closing quote if that is the fault.
    """
    opened, quoted = start, False
    for number, line in file.lines():
        if number > stopped:
            break
        position = 0 if number >= start else len(line)
        while position < len(line):
            if quoted:
                closing = line.find('"', position)
                position = closing + 1 if closing >= 0 else len(line)
                behind = line[position:].rstrip("\r\n")
                if behind.startswith('"'):
                    position += 1
                elif closing >= 0:
                    quoted = False
                    if behind and behind[0] != file.delimiter:
                        return opened, behind
            elif line[position] == '"':
                opened, quoted = number, True
                position += 1
            else:
                # a quote inside an unquoted field is a character: go on to the next field
                end = line.find(file.delimiter, position)
                position = end + 1 if end >= 0 else len(line)
    return opened, ""
