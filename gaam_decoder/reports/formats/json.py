"""Everything, for programs."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, TextIO

from gaam_decoder.reports.notes import conclusion, notes, warnings
from gaam_decoder.reports.sections.base import Section, answers, sections_of, signature
from gaam_decoder.reports.table import Format, Table


class Json(Format):
    """One object; further caches or test sets, if there are any, under ``other_caches``."""

    has_columns: ClassVar[bool] = False

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the object; accuracies are fractions.

        In ASCII: whatever a name is made of, every program reads it, and no terminal obeys it.
        """
        every = zip(tables, sections_of(tables, self.section), strict=True)
        if self.section is None:
            objects = [_values(table, of_table) for table, of_table in every]
        else:
            objects = [
                _alone(table, section)
                for table, of_table in every
                for section in of_table
            ]
        first, *others = objects
        first |= {"other_caches": others} if others else {}
        # null for what is no number, such as in the attention map of a lost seed
        finite = json.loads(json.dumps(first), parse_constant=lambda name: None)  # noqa: ARG005
        json.dump(finite, stream, indent=2, ensure_ascii=True, allow_nan=False)
        stream.write("\n")


def _alone(table: Table, section: Section) -> dict[str, Any]:
    """One section of a table, with what a person reads of it."""
    return {
        "title": table.title(),
        "warnings": warnings(table),
        "section": section.name,
        "heading": section.heading,
        "lead": section.lead,
        "lines": section.lines,
        "values": section.values,
        "tables": [
            {"caption": one.caption, "header": one.header, "lines": one.lines}
            for one in section.parts[0]
        ],
        "signature": signature(table),
    }


def _values(table: Table, of_table: Sequence[Section]) -> dict[str, Any]:
    return table.to_dict() | {
        "conclusion": conclusion(table),
        "answers": answers(table, of_table),
        "notes": notes(table),
        "signature": signature(table),
        "sections": {
            one.name: {"lead": one.lead, "lines": one.lines, "values": one.values}
            for one in of_table
            if one.lead
        },
    }
