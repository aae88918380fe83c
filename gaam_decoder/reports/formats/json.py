"""Write a report as JSON: everything, for programs."""

import json
from collections.abc import Sequence
from typing import ClassVar, TextIO

from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import notes, warnings
from gaam_decoder.reports.sections.base import (
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

        The object is in ASCII: every program reads it, and no name in it can send
        control characters to a terminal.
        """
        objects: list[dict[str, object]] = []
        above = sections_above_tables(self.sections_over_sets, self.section)
        if self.section is not None:
            objects += [_section_values(section) for section in above]
        sections_by_table = requested_sections(
            tables, self.section, self.sections_over_sets
        )
        for table, sections in zip(tables, sections_by_table, strict=True):
            if self.section is None:
                objects.append(_values(table, sections))
            else:
                objects += [_alone(table, section) for section in sections]
        first, *other_objects = objects
        if other_objects:
            first["other_caches"] = other_objects
        if self.section is None and above:
            first["over_data_sets"] = _values_by_name(above)

        # NaN becomes null, such as in the attention map of a lost seed.
        finite = json.loads(json.dumps(first), parse_constant=_null)
        json.dump(finite, stream, indent=2, ensure_ascii=True, allow_nan=False)
        stream.write("\n")


def _null(constant: str) -> None:  # noqa: ARG001
    """Stand for NaN and infinity, which JSON does not have."""


def _alone(table: Table, section: Section) -> dict[str, object]:
    """A section that is written alone, with title, warnings and signature of its table.

    Its own tables are those that people read.
    """
    return {
        "title": table.title(),
        "warnings": warnings(table),
        **_section_values(section),
        "signature": signature(table),
    }


def _section_values(section: Section) -> dict[str, object]:
    """A section as JSON values, with its tables as people read them."""
    sheets, _ = section.parts
    return {
        "section": section.name,
        "heading": section.heading,
        "lead": section.lead,
        "lines": section.lines,
        "values": section.values,
        "tables": [
            {"caption": sheet.caption, "header": sheet.header, "lines": sheet.lines}
            for sheet in sheets
        ],
    }


def _values(table: Table, sections: Sequence[Section]) -> dict[str, object]:
    """Everything on a table, with those of its sections that have a lead sentence."""
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
