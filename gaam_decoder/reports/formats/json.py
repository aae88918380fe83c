"""Write a report as JSON: everything, for programs."""

import json
from collections.abc import Sequence
from typing import ClassVar, TextIO

from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import notes, warnings
from gaam_decoder.reports.sections.base import (
    ENCODERS,
    Section,
    answer_sentences,
    requested_sections,
    sections_above_tables,
    signature,
)
from gaam_decoder.reports.table import Format, Table


class Json(Format):
    """One object, with further caches or test sets under ``other_caches``."""

    has_columns: ClassVar[bool] = False

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the object; accuracies are fractions.

        The object is that of the first table, or of the requested section in the first
        table that has it. Its key ``other_caches`` has those of the other tables. The
        object is in ASCII: every program reads it, and no name in it can send control
        characters to a terminal.
        """
        over_sets = sections_above_tables(self.sections_over_sets, self.section)
        sections_by_table = requested_sections(
            tables, self.section, self.sections_over_sets
        )
        objects: list[dict[str, object]] = []
        if self.section is None:
            for table, sections in zip(tables, sections_by_table, strict=True):
                objects.append(_table_values(table, sections))
        else:
            # a section is one over data sets, or one of tables
            objects += [_section_values(section) for section in over_sets]
            for table, sections in zip(tables, sections_by_table, strict=True):
                objects += [_section_of_table(table, section) for section in sections]

        first, *other_objects = objects
        if other_objects:
            first["other_caches"] = other_objects
        if self.section is None and over_sets:
            values_by_name = _values_by_name(over_sets)
            if ENCODERS in values_by_name:
                first[ENCODERS] = values_by_name.pop(ENCODERS)
            if values_by_name:
                first["over_data_sets"] = values_by_name

        # NaN becomes null, such as in the attention map of a lost seed.
        finite = json.loads(json.dumps(first), parse_constant=_null)
        json.dump(finite, stream, indent=2, ensure_ascii=True, allow_nan=False)
        stream.write("\n")


def _null(constant: str) -> None:  # noqa: ARG001
    """Stand for NaN and infinity, which JSON does not have."""


def _section_of_table(table: Table, section: Section) -> dict[str, object]:
    """A section of a table, with the title, warnings and signature of the table."""
    return {
        "title": table.title(),
        "warnings": warnings(table),
        **_section_values(section),
        "signature": signature(table),
    }


def _section_values(section: Section) -> dict[str, object]:
    """A section as JSON values; cells of its tables are texts, as people read them."""
    return {
        "section": section.name,
        "heading": section.heading,
        "lead": section.lead,
        "lines": section.lines,
        "values": section.values,
        "tables": [
            {"caption": sheet.caption, "header": sheet.header, "lines": sheet.lines}
            for sheet in section.parts.sheets
        ],
    }


def _table_values(table: Table, sections: Sequence[Section]) -> dict[str, object]:
    """Everything on a table as JSON values, with its sections."""
    return table.to_dict() | {
        "conclusion": conclusion(table),
        "answers": answer_sentences(table, sections),
        "notes": notes(table),
        "signature": signature(table),
        "sections": _values_by_name(sections),
    }


def _values_by_name(sections: Sequence[Section]) -> dict[str, object]:
    """Name of a section -> its JSON values; only sections that have a lead sentence."""
    return {
        section.name: {
            "lead": section.lead,
            "lines": section.lines,
            "values": section.values,
        }
        for section in sections
        if section.lead
    }
