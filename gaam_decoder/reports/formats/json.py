"""Everything, for programs."""

import json
from collections.abc import Sequence
from typing import Any, TextIO

from gaam_decoder.reports.notes import conclusion, notes
from gaam_decoder.reports.sections._base import sections, signature
from gaam_decoder.reports.table import Format, Table


class Json(Format):
    """One object; further caches or test sets, if there are any, under ``other_caches``."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the object; accuracies are fractions.

        In ASCII: whatever a name is made of, every program reads it, and no terminal obeys it.
        """
        first, *others = map(_values, tables)
        first |= {"other_caches": others} if others else {}
        # null for what is no number, such as in the attention map of a lost seed
        finite = json.loads(json.dumps(first), parse_constant=lambda name: None)  # noqa: ARG005
        json.dump(finite, stream, indent=2, ensure_ascii=True, allow_nan=False)
        stream.write("\n")


def _values(table: Table) -> dict[str, Any]:
    return table.to_dict() | {
        "conclusion": conclusion(table),
        "notes": notes(table),
        "signature": signature(table),
        "sections": {
            one.name: {"lead": one.lead, "lines": one.lines, "values": one.values}
            for one in sections(table)
            if one.lead
        },
    }
