"""The line that is enough to train a table again."""

from __future__ import annotations

from gaam_decoder.reports.signature import signature
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.writing.section import Section, Writer


class Signature(Writer):
    """Stands last but for the checklist."""

    place = 80

    def of(self, table: Table) -> Section | None:
        """One line to be copied."""
        return Section(
            name="signature",
            heading="Signature",
            lead="gaam rerun prints the commands that give this table again, from the signature, "
            "from a run, or from a report in JSON",
            verbatim=signature(table),
        )
