"""One line per mechanism, for spreadsheets and data frames."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from gaam_cache.common.messages import visible
from gaam_decoder.reports.columns import Column
from gaam_decoder.reports.notes import conclusion
from gaam_decoder.reports.sections.base import sections_of
from gaam_decoder.reports.table import Format, Table

TITLE = "title"  # of the table that a line is of
UNNAMED = (
    "cache",
    "scores",
    "comparison",
)  # their values are columns by their own names
# at the beginning of a cell, also where a spreadsheet takes semicolons for the separator, and in
# the full-width forms that some take as well
_FORMULA = re.compile("(^|;)(?=\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20])")


class Csv(Format):
    """Accuracies are fractions; a value that does not exist is empty."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a line per row of every table: what JSON has of it, by its keys.

        Of some columns these by their headers, and the title where there are several tables; of a
        section the lines of its tables as people read them, behind title and caption of each.
        """
        import pandas

        if self.section is not None:
            found = list(_lines_of_section(tables, self.section))
        elif self.columns:
            found = [line for table in tables for line in _chosen(table, self.columns)]
        else:
            found = [line for table in tables for line in _lines(table)]
        if self.columns and len(tables) == 1:
            found = [
                {name: line[name] for name in line if name != TITLE} for line in found
            ]
        lines = [
            {_cell(name): _cell(value) for name, value in line.items()}
            for line in found
        ]
        pandas.DataFrame(lines, dtype=object).to_csv(
            stream, index=False, lineterminator="\n"
        )


def _chosen(table: Table, columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    """Some columns of every row that is shown; accuracies and differences are fractions."""
    for row in table.shown:
        line: dict[str, Any] = {TITLE: table.title()}
        for column in columns:
            line |= column.cells(row, table.unit.title)
        yield line


def _lines_of_section(tables: Sequence[Table], name: str) -> Iterator[dict[str, Any]]:
    for table, of_table in zip(tables, sections_of(tables, name), strict=True):
        for sheet in (one for section in of_table for one in section.parts[0]):
            place = {TITLE: table.title(), "caption": sheet.caption}
            for cells in sheet.lines:
                yield place | dict(zip(sheet.header, cells, strict=True))


def _lines(table: Table) -> Iterator[dict[str, Any]]:
    about = table.to_dict()
    shared = {
        name: about["cache"][name] for name in ("fingerprint", "encoder", "dataset")
    }
    if table.apart:
        shared["cache_differs_by"] = table.apart
    left_out = table.selection.left_out if table.selection else {}
    counts = ", ".join(f"{count:,} by {name}" for name, count in left_out.items())
    shared |= {"left_out": counts or None, "compared_by": table.score}
    shared["conclusion"] = conclusion(table)
    if (groups := about["groups"]) is not None:
        shared |= {
            "groups": groups["number"],
            "grouped_by": ", ".join(groups["columns"]),
        }
    tested = {
        name: about[name] for name in ("tested_on", "test_rows", "majority_accuracy")
    }
    for row, values in zip(table.shown, about["rows"], strict=True):
        yield (
            shared
            | flat(values)
            | tested
            | {"settings": row.settings, "evaluated": True}
        )
    for final in about["final_models"]:
        yield shared | flat(final)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """JSON values as columns: ``accuracy.mean`` is ``accuracy_mean``.

    Of intervals ``low`` and ``high``, of seeds how many; other lists are in no column.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, Mapping):
            short = key.replace("on_these_test_rows", "these_rows")
            found |= flat(value, "" if key in UNNAMED else f"{prefix}{short}_")
        elif "ci95" in key and value is not None:
            found |= {f"{name}_low": value[0], f"{name}_high": value[1]}
        elif isinstance(value, (list, tuple)):
            found |= {name: len(value)} if key.endswith("seeds") else {}
        elif value is not None:
            found[name] = value
    return found


def _cell(value: Any) -> Any:
    """Numbers stay numbers, and text that begins like a formula is text."""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", visible(re.sub(r"^(?=[\t\r])", "'", value)))
